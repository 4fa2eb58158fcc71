#!/bin/sh
# Installs the Debian packages that are missing, and says which. usage: install_packages.sh PACKAGE...
# Uses sudo only if not root. Where apt is absent it lists what is needed and fails.
set -eu
missing=
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "Installing:$missing"
command -v apt-get >/dev/null 2>&1 || { echo "apt-get is not here; please install these by hand:$missing" >&2; exit 1; }
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root env DEBIAN_FRONTEND=noninteractive sh -ec "
  apt-get -qq -o DPkg::Lock::Timeout=300 update
  apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends$missing >/dev/null"
