#!/usr/bin/env bash
# package.sh BUILD: makes two packages of the programs in the build folder BUILD, in BUILD/package:
# a .deb, which depends on the distribution's libraries, and a tar.gz with its own, which needs only glibc.
set -euo pipefail
build=$1
out=$build/package
cached() { sed -nE "s/^$1:[A-Z]+=//p" "$build/CMakeCache.txt"; }
version=$(cached BATON_VERSION)
strip=$(cached CMAKE_STRIP)
# Of a build for 64-bit Arm on another machine: the folder with the distribution's libraries.
root=$(cached BATON_ARM64_ROOT)
name=baton-$version-linux-$([[ -z $root ]] && uname -m || echo aarch64)

# Prints the paths of the libraries that programs need, directly or through others.
libraries_of() {
  local program
  if [[ -z $root ]]; then
    ldd "$@"
  else
    for program; do qemu-aarch64 -L "$root" -E LD_TRACE_LOADED_OBJECTS=1 "$program"; done
  fi | awk -v root="$root" '$2 == "=>" && $3 ~ /^\// {print root $3}' | sort -u
}

# The packages have the same names for all architectures, and this machine has them.
owner_of() { dpkg-query --search "*/$(uname -m)-linux-gnu/${1##*/}" | head -1 | cut -d: -f1; }

rm -rf "$out"
mkdir -p "$out"
depends=()
if [[ -n $root ]]; then
  # dpkg-shlibdeps knows only the libraries of installed packages.
  depends=(-D "CPACK_DEBIAN_PACKAGE_DEPENDS=$("${strip%strip}objdump" -p "$build"/bin/baton* | awk '$1 == "NEEDED" && $2 !~ /^ld-/ {print $2}' |
    sort -u | while read -r library; do owner_of "$library"; done | sort -u |
    sed -E 's/^libc6$/libc6 (>= 2.36)/; s/^libstdc\+\+6$/libstdc++6 (>= 12)/' | paste -sd, | sed 's/,/, /g')")
fi
(cd "$build" && cpack -G DEB -B package "${depends[@]}") >"$out/cpack.log" 2>&1 || {
  cat "$out/cpack.log" >&2
  exit 1
}
rm -rf "$out/_CPack_Packages" "$out/cpack.log"

cmake --install "$build" --prefix "$out/$name" --strip >/dev/null
mkdir -p "$out/$name/lib"
# Everything but glibc, whose parts must be of one version; with the licences.
libraries_of "$out/$name"/bin/* |
  while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.* | libanl.so.*) continue ;;
    esac
    install -m 644 --strip --strip-program="$strip" "$library" "$out/$name/lib/"
    owner=$(owner_of "$library")
    install -D -m 644 "/usr/share/doc/$owner/copyright" "$out/$name/share/doc/baton/licences/$owner"
  done
tar -C "$out" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
rm -rf "${out:?}/$name"
printf '%s\n' "$out"/*
