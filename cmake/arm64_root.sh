#!/usr/bin/env bash
# arm64_root.sh FOLDER: unpacks the 64-bit Arm versions of the libraries in packages.txt, with what they depend on,
# into FOLDER. apt keeps its lists and downloads in a folder of their own, so that the machine's packages stay as
# they are.
set -euo pipefail
packages=$(dirname "${BASH_SOURCE[0]}")/packages.txt
to=$1
work=$(mktemp -d "$(dirname "$to")/arm64.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir -p "$work"/{state/lists,cache/archives}/partial "$work/root/usr/lib"
: >"$work/status"
cat >"$work/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
CONF
export APT_CONFIG=$work/apt.conf
apt-get -qq update
# The same version of libstdc++ as the compiler's.
mapfile -t wanted < <(grep -e '-dev$' "$packages")
apt-get -qq -y --no-install-recommends --download-only install libc6-dev libstdc++-12-dev "${wanted[@]}"

# Some packages name /lib, others /usr/lib.
ln -s usr/lib "$work/root/lib"
for archive in "$work"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$work/root" --no-same-owner --keep-directory-symlink
done
# Programs in QEMU find these paths before the machine's own, so keep only what is read from there.
find "$work/root" -mindepth 1 -maxdepth 1 ! -name lib ! -name usr -exec rm -rf {} +
find "$work/root/usr" -mindepth 1 -maxdepth 1 ! -name include ! -name lib ! -name share -exec rm -rf {} +
find "$work/root/usr/share" -mindepth 1 -maxdepth 1 ! -name cmake ! -name pkgconfig ! -name doc -exec rm -rf {} +
# Links to absolute paths would lead out of the folder.
find "$work/root" -lname '/*' | while read -r link; do
  ln -sfnr "$work/root$(readlink "$link")" "$link"
done
# CMake files of the packages stop where these programs are missing. The generators of code run on this machine.
mkdir "$work/root/usr/bin"
: >"$work/root/usr/bin/civetweb"
ln -s /usr/bin/grpc_*_plugin "$work/root/usr/bin/"
rm -rf "$to"
mv "$work/root" "$to"
