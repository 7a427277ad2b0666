#!/usr/bin/env bash
# arm64_run.sh ROOT COMMAND…: runs COMMAND where programs for 64-bit Arm start like the machine's own, with the
# libraries in ROOT, so that tests may start them by their paths. QEMU is registered for such programs in a user
# namespace (Linux 6.7 or newer), so the machine stays as it is.
set -euo pipefail
if [[ $1 != --inside ]]; then
  exec unshare --user --map-root-user --mount "$0" --inside "$@"
fi
export QEMU_LD_PREFIX=$2
shift 2
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
# An ELF file of 64 bits, little-endian, whose machine is 183, an executable (2) or a shared object (3). The flags keep
# argv[0], and QEMU open.
printf '%s' ':baton-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64)"':FP' \
  >/proc/sys/fs/binfmt_misc/register
exec "$@"
