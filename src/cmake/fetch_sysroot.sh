#!/bin/sh
# Unpacks Debian's development packages of another architecture into DESTINATION for a cross build, without root and without changing the machine's set of
# architectures: apt's lists and cache are private, as in fetch_abseil.sh.
# usage: fetch_sysroot.sh DESTINATION ARCHITECTURE PACKAGE...
set -eu
destination=$1
architecture=$2
shift 2
stamp=$destination/.packages
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$*" ] && exit 0
work=$destination.work
rm -rf "$work" "$destination"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/download" "$destination"
: > "$work/status"
apt_private() {
  apt-get -qq -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
    -o Dir::Cache::Archives="$work/archives" -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
apt_private update
(cd "$work/download" && apt_private download "$@")
for package in "$work"/download/*.deb; do
  dpkg-deb -x "$package" "$destination"
done
rm -rf "$work"
printf '%s' "$*" > "$stamp"
