#!/usr/bin/env bash
# package.sh BUILD: makes two packages of the programs in the build folder BUILD, in BUILD/package:
# a .deb, which depends on the distribution's libraries, and a tar.gz with its own, which needs only glibc.
set -euo pipefail
build=$1
out=$build/package
version=$(sed -n 's/^BATON_VERSION:INTERNAL=//p' "$build/CMakeCache.txt")
name=baton-$version-linux-$(uname -m)

rm -rf "$out"
mkdir -p "$out"
(cd "$build" && cpack -G DEB -B package) >"$out/cpack.log" 2>&1 || {
  cat "$out/cpack.log" >&2
  exit 1
}
rm -rf "$out/_CPack_Packages" "$out/cpack.log"

cmake --install "$build" --prefix "$out/$name" --strip >/dev/null
mkdir -p "$out/$name/lib"
# Everything but glibc, whose parts must be of one version; with the licences.
ldd "$out/$name"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.* | libanl.so.*) continue ;;
    esac
    install -m 644 --strip "$library" "$out/$name/lib/"
    owner=$(dpkg-query --search "*/${library##*/}" | head -1 | cut -d: -f1)
    install -D -m 644 "/usr/share/doc/$owner/copyright" "$out/$name/share/doc/baton/licences/$owner"
  done
tar -C "$out" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
rm -rf "${out:?}/$name"
printf '%s\n' "$out"/*
