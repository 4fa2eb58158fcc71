#!/bin/sh
# Unpacks Debian's source package of Abseil into DESTINATION, without root and without touching the user's apt set-up:
# the source list is derived from the machine's own binary list, and apt's state lives in a folder of ours.
# usage: fetch_abseil.sh DESTINATION        (DESTINATION/CMakeLists.txt exists afterwards; exit 1 where apt cannot help)
set -eu
destination=$1
work=$destination.work
command -v apt-get >/dev/null 2>&1 && command -v dpkg-source >/dev/null 2>&1 || exit 1
[ -f "$destination/CMakeLists.txt" ] && exit 0
rm -rf "$work"
mkdir -p "$work/parts" "$work/lists/partial" "$work/archives/partial" "$work/download"
. /etc/os-release

# One-line and deb822 lists; only stanzas of this very release, since third-party lists rarely carry sources.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -f "$list" ] || continue
  grep -E "^deb .*[ /]$VERSION_CODENAME([- /]|\$)" "$list" | grep -vE "[a-z]-$VERSION_CODENAME" |
    sed 's/^deb /deb-src /' >> "$work/parts/debian.list" || true
done
n=0
for list in /etc/apt/sources.list.d/*.sources; do
  [ -f "$list" ] || continue
  n=$((n + 1))
  sed '/^#/d' "$list" | awk -v RS= -v ORS='\n\n' -v suite="$VERSION_CODENAME" '
    $0 ~ ("Suites:([^\n]* )?[ ]*" suite "([ \n-]|$)") { gsub(/Types:[^\n]*/, "Types: deb-src"); print }' \
    > "$work/parts/debian$n.sources"
done

apt_private() {
  apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/parts" \
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
apt_private update
(cd "$work/download" && apt_private source --download-only abseil)
rm -rf "$destination"
dpkg-source --no-check -x "$work"/download/abseil_*.dsc "$destination" >/dev/null
rm -rf "$work"
[ -f "$destination/CMakeLists.txt" ]
