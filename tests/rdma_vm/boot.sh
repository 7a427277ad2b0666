#!/usr/bin/env bash
# boot.sh TEST FILE…: boots a guest with soft-RoCE devices (rdma_rxe, no hardware, no root), runs the guest
# script TEST in it, and exits with the script's status. Each FILE, a program, a folder or data, is copied to
# the same path in the guest; a program also gets a link in /bin, and the libraries that it needs. The machine is
# emulated (QEMU TCG), so everything in it is slow. `./dev test -L rdma` installs what this script needs; see
# README.md.
#
# Variables: MEMORY_MIB (default 2048), TIMEOUT_S (default 900), CPU (a model of QEMU, default Nehalem).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernel=${BATON_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/baton}/rdma_vm
libraries=/usr/lib/x86_64-linux-gnu

die() {
  echo "boot.sh: $*" >&2
  exit 1
}
(($# >= 1)) || die "usage: boot.sh TEST FILE…"
for program in qemu-system-x86_64 busybox cpio modprobe ip rdma; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null ||
    die "$program is missing: run ./dev test -L rdma, which installs it"
done
[[ -f $kernel/version ]] || die "there is no kernel in $kernel: run ./dev test -L rdma, which downloads it"
version=$(<"$kernel/version")

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc/libibverbs.d,modules,usr,lib64} "$root/lib/x86_64-linux-gnu/libibverbs"
ln -s ../lib "$root/usr/lib"

# copy_program FILE FOLDER: with the libraries that it needs.
copy_program() {
  cp -L "$1" "$root/$2/"
  { ldd "$1" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
    case $library in
      */ld-linux*) cp -nL "$library" "$root/lib64/" ;;
      *) cp -nL "$library" "$root/lib/x86_64-linux-gnu/" ;;
    esac
  done
}

cp "$(command -v busybox)" "$root/bin/busybox"
"$root/bin/busybox" --list | while read -r applet; do
  [[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
done
for program in bash ip rdma tc; do
  rm -f "$root/bin/$program" # busybox's
  copy_program "$(PATH="$PATH:/usr/sbin:/sbin" command -v "$program")" bin
done
ln -sf bash "$root/bin/sh" # busybox's shell prefers busybox's own ip and tc
script=$1
shift
for file in "$@"; do
  file=$(realpath "$file")
  mkdir -p "$root${file%/*}"
  if [[ -d $file || ! -x $file ]]; then
    cp -RL "$file" "$root${file%/*}/"
    continue
  fi
  copy_program "$file" "${file%/*}"
  # The guest copies everything once more when it starts.
  strip --strip-debug "$root$file" 2>/dev/null || true
  ln -s "$file" "$root/bin/${file##*/}"
done
# Programs open these at run time.
copy_program $libraries/libibverbs.so.1 lib/x86_64-linux-gnu
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
copy_program "$(echo $libraries/libibverbs/librxe-rdmav*.so)" lib/x86_64-linux-gnu/libibverbs

# In the order in which the guest loads them. rdma_rxe asks for crc32 by name, so its dependencies lack it.
for module in crc32_generic rdma_rxe ib_uverbs veth sch_netem; do
  PATH="$PATH:/usr/sbin:/sbin" modprobe -d "$kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r module; do
  cp "$module" "$root/modules/"
  basename "$module" >>"$root/modules/order"
done
printf '127.0.0.1 localhost guest\n' >"$root/etc/hosts"
printf 'root:x:0:0:root:/:/bin/bash\n' >"$root/etc/passwd"
install -m 755 "$here/guest/init" "$root/init"
install -m 644 "$here/guest/network.sh" "$root/network.sh"
install -m 755 "$here/guest/run_tests" "$root/bin/run_tests"
install -m 755 "$script" "$root/guest_test"

# Not compressed, because unpacking is slow in an emulated machine.
(cd "$root" && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet) >"$root.cpio"
rm -rf "$root"
trap 'rm -f "$root.cpio" "$root.log"' EXIT

# A processor without AVX, because portable kernels and checksums are faster than emulated AVX. `max` has AVX2,
# for quantised weights.
timeout --kill-after=5 "${TIMEOUT_S:-900}" \
  qemu-system-x86_64 -accel tcg,thread=multi -cpu "${CPU:-Nehalem}" -m "${MEMORY_MIB:-2048}" -smp 2 \
  -nodefaults -display none -no-reboot -serial stdio -nic none \
  -kernel "$kernel/boot/vmlinuz-$version" -initrd "$root.cpio" \
  -append "console=ttyS0 panic=-1 quiet" </dev/null | sed -u 's/\r$//' | tee "$root.log" || true
status=$(sed -n 's/^GUEST_STATUS=//p' "$root.log" | tail -1)
[[ -n $status ]] || die "the guest ended without a status (or did not end within ${TIMEOUT_S:-900} s)"
exit "$status"
