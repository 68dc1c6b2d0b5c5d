#!/bin/sh
# Puts Debian's mlir-opt-22 into a folder, without root: for the tests that give exported schedules to it.
# Does nothing where the machine has the program. Fails, having said why, where it cannot be had: the tests
# that need it are then skipped, and say so.
# Usage: scripts/fetch_mlir_opt.sh FOLDER    (makes FOLDER/mlir-22, and FOLDER/mlir-opt-22 that starts it)
set -u
folder=${1:?usage: $0 FOLDER}
program=mlir-opt-22
packages="mlir-22-tools libmlir-22 libllvm22 libz3-4"

if command -v "$program" >/dev/null 2>&1; then
    exit 0
fi
for needed in apt-get dpkg; do
    if ! command -v "$needed" >/dev/null 2>&1; then
        echo "$program is not fetched: it comes from Debian's packages, and there is no $needed here" >&2
        exit 1
    fi
done

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$folder"
folder=$(cd "$folder" && pwd)
# Lists and packages go into the scratch folder, so that nothing of the system is touched. As root, apt
# would otherwise read them as another user, who may not.
apt="apt-get -q -o Dir::State::Lists=$scratch/lists -o Dir::Cache=$scratch/cache"
apt="$apt -o APT::Sandbox::User=root -o Acquire::Retries=2 -o Acquire::http::Timeout=30"
if ! (cd "$scratch" && $apt update && $apt download $packages) >"$scratch/log" 2>&1; then
    tail -n 5 "$scratch/log" >&2
    echo "$program is not fetched: these packages cannot be downloaded here: $packages" >&2
    exit 1
fi
rm -rf "$folder/mlir-22"
for package in "$scratch"/*.deb; do
    dpkg -x "$package" "$folder/mlir-22" || exit 1
done
libraries=$(dirname "$(find "$folder/mlir-22/usr/lib" -name 'libLLVM.so.22*' | head -n 1)")
cat >"$folder/$program" <<START
#!/bin/sh
LD_LIBRARY_PATH="$libraries:$folder/mlir-22/usr/lib/llvm-22/lib" exec "$folder/mlir-22/usr/lib/llvm-22/bin/mlir-opt" "\$@"
START
chmod +x "$folder/$program"
if ! "$folder/$program" --version >"$scratch/log" 2>&1; then
    cat "$scratch/log" >&2
    rm -rf "$folder/$program" "$folder/mlir-22"
    echo "$program was fetched, and does not start" >&2
    exit 1
fi
