#!/usr/bin/env bash
# From a fresh checkout to a quantized model: installs what is missing, builds, and runs the whole main job on the small model that ships
# with the project, or on yours.
set -euo pipefail
usage="usage: samples/quickstart.sh [--model PATH] [--text HELD-OUT.txt] [--calibration FILE.txt]"
start_folder=$PWD
cd "$(dirname "$0")/.."
shipped=samples/models/tiny-llama
model=$shipped
text=$shipped/tiny-heldout.txt
calibration=$shipped/tiny-calibration.txt
calibration_given=no
while [ $# -gt 0 ]; do
  case $1 in
    --model|--text|--calibration)
      [ $# -ge 2 ] || { echo "quickstart: $1 needs a path" >&2; exit 2; }
      path=$2
      case $path in /*) ;; *) path=$start_folder/$path ;; esac
      [ -e "$path" ] || { echo "quickstart: $2 does not exist" >&2; exit 2; }
      case $1 in
        --model) model=$path ;;
        --text) text=$path ;;
        --calibration) calibration=$path; calibration_given=yes ;;
      esac
      shift 2 ;;
    -h|--help) echo "$usage"; exit 0 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done

echo "== packages"
# shellcheck disable=SC2046
sh src/cmake/install_packages.sh $(sed -n 's/^build: //p' src/cmake/packages.txt)
echo "== build (release, into build/release)"
mkdir -p build
cmake --preset release -DQINFER_BUILD_TESTS=OFF > build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
cmake --build --preset release -j "$(nproc)"

echo "== calibrate, quantize, measure"
out=build/quickstart
mkdir -p "$out"
arguments=("$model" "$out" --text "$text")
if [ "$model" = "$shipped" ]; then
  arguments+=(--calibration "$calibration" --context 256)
else
  # Your model: it writes its own calibration text unless you give one, and a part of the held-out text is enough for a first look.
  [ "$calibration_given" = no ] || arguments+=(--calibration "$calibration")
  arguments+=(--context 512 --windows 16)
fi
build/release/samples/quickstart/quickstart "${arguments[@]}"
echo
echo "Next: $PWD/build/release/samples/cli/qinfer generate $PWD/$out/model.int4.qinfer -p \"In the beginning\""
