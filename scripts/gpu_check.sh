#!/bin/sh
# Checks this project on a machine with an NVIDIA GPU and without any registry, in about ten minutes: installs
# what gpu_bundle.py made into an environment, and first runs the benchmark cuda_printed.py: are printed kernels of each
# family right, and as fast as TVM's? Then come the tests marked gpu and the benchmarks cuda_device.py, cuda.py and
# cuda_network.py. A table is printed at the end. What is installed already is not tested: where something else than the bundle's
# would be imported, that is refused by its name.
# A whole network (ResNet-50 with 2,000 trials) takes longer than that: of cuda_network.py the quick form runs, in
# float16, in what is left of ten minutes; another check with the same FOLDER goes on with it.
# Usage: gpu_check.sh BUNDLE [FOLDER]    (FOLDER, by default ./gpu-check, gets the environment and the logs)
# PYTHON names the interpreter, by default python3. The exit status is 0 if every step succeeded, 2 for wrong
# arguments, 3 without a GPU.
set -u
bundle=${1:?usage: $0 BUNDLE [FOLDER]}
folder=${2:-gpu-check}
# By its path: the environment's own comes first later.
python=$(command -v "${PYTHON:-python3}") || {
    echo "error: ${PYTHON:-python3} was not found" >&2
    exit 2
}

unpack() {
    "$python" "$bundle/gpu_reassemble.py" "$bundle" "$folder/files" &&
        mkdir -p "$folder/source" &&
        tar -xzf "$folder/files/autotune-source.tar.gz" -C "$folder/source"
}

# The environment sees what the interpreter has, such as torch, also where that is in an environment itself. Its pip
# is used, since not every Python can make one.
install() {
    "$python" -m venv --clear --without-pip "$folder/venv" || return 1
    "$python" - "$folder/venv" <<'PARENT' || return 1
import pathlib, site, sys

(packages,) = pathlib.Path(sys.argv[1]).glob("lib/python*/site-packages")
packages.joinpath("parent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
PARENT
    wheels= names=tensor-autotune
    # And NVRTC with its headers: nothing requires them where there may be a toolkit.
    for wheel in "$folder"/files/autotune_*.whl "$folder"/files/nvidia_*.whl; do
        case $wheel in
        *"*"*) ;;
        # What learns in torch needs that of the machine.
        */autotune_pruner-*) "$python" -c "import torch" 2>/dev/null && wheels="$wheels $wheel" ;;
        *) wheels="$wheels $wheel" ;;
        esac
    done
    for wheel in $wheels; do
        wheel=${wheel##*/}
        names="$names ${wheel%%-*}"
    done
    core="--no-build-isolation $folder/source"
    for wheel in "$folder"/files/tensor_autotune-*.whl; do
        [ -f "$wheel" ] && core=$wheel
    done
    tools=$(ls "$folder"/files/scikit_build_core-*.whl "$folder"/files/nanobind-*.whl \
        "$folder"/files/cmake-*.whl "$folder"/files/ninja-*.whl "$folder"/files/pathspec-*.whl \
        "$folder"/files/packaging-*.whl 2>/dev/null)
    pip="$python -m pip --isolated --python $folder/venv/bin/python install --no-index --disable-pip-version-check"
    # No settings of the machine: they may name indexes. Words are meant to be split: paths of a bundle have no spaces.
    export PIP_CONFIG_FILE=/dev/null PATH="$folder/venv/bin:$PATH"
    # shellcheck disable=SC2086
    { [ -z "$tools" ] || $pip --no-deps $tools; } &&
        $pip --no-deps --force-reinstall $core $wheels &&
        $pip --find-links "$folder/files" $names pytest pytest-timeout pytest-xdist hypothesis &&
        is_ours $names
}

# pip takes what the interpreter has of the same version for what it was given; other folders may come first, too.
is_ours() {
    "$folder/venv/bin/python" - "$folder/venv" "$@" <<'OURS'
import importlib.util, pathlib, sys

venv, _, *names = sys.argv[1:]
for name in ["autotune", *(it for it in names if it.startswith("autotune"))]:
    found = importlib.util.find_spec(name)
    where = "nowhere" if found is None or found.origin is None else found.origin
    if pathlib.Path(venv).resolve() not in pathlib.Path(where).resolve().parents:
        sys.exit(f"error: {name} would be that of {where}, and not the bundle's: see PYTHONPATH")
OURS
}

# Only files with such tests are read: others may need what is not here. Tests that find no device are skipped, which
# is no success here.
tests() {
    cd "$folder/source" || return 1
    found=$(grep -rl --include="test_*.py" "mark\.gpu" tests plugins/*/tests)
    # shellcheck disable=SC2086
    "$folder/venv/bin/python" -m pytest -m gpu -q --timeout 180 --durations 10 -p no:cacheprovider $found \
        >"$folder/logs/pytest.log" 2>&1
    code=$?
    cat "$folder/logs/pytest.log"
    [ "$code" -eq 0 ] && grep -q "[0-9] passed" "$folder/logs/pytest.log"
}

# Candidates of every sketch, printed and by TVM.
printed() {
    cd "$folder/source" && "$folder/venv/bin/python" benchmarks/bench.py cuda_printed --quick --check \
        --limit 200 --json "$folder/cuda_printed.json"
}

benchmark() {
    cd "$folder/source" && "$folder/venv/bin/python" benchmarks/bench.py cuda --quick --check \
        --json "$folder/cuda.json"
}

# What it has measured stays in the folder: another check goes on from there.
device() {
    cd "$folder/source" && "$folder/venv/bin/python" benchmarks/bench.py cuda_device --quick --check \
        --work "$folder/cuda_device" --limit 400 --json "$folder/cuda_device.json"
}

# In the seconds that are left; what it has measured stays in the folder.
network() {
    cd "$folder/source" || return 1
    "$folder/venv/bin/python" benchmarks/bench.py cuda_network --quick --check --precisions float16 \
        --work "$folder/cuda_network" --seconds "$GPU_CHECK_LEFT" --json "$folder/cuda_network.json"
    code=$?
    [ "$code" -eq 3 ] && code=$UNFINISHED
    return "$code"
}

# What a step returns that another check goes on with.
UNFINISHED=75

# The steps, each in a process that can be stopped: this script again.
case ${GPU_CHECK_STEP:-} in
unpack) unpack; exit ;;
install) install; exit ;;
printed) printed; exit ;;
tests) tests; exit ;;
benchmark) benchmark; exit ;;
device) device; exit ;;
network) network; exit ;;
esac

if [ ! -f "$bundle/manifest.json" ]; then
    echo "error: $bundle is no bundle: there is no manifest.json" >&2
    exit 2
fi
if ! gpus=$(nvidia-smi -L 2>/dev/null) || [ -z "$gpus" ]; then
    echo "error: no GPU: nvidia-smi is not there, or lists none" >&2
    exit 3
fi
echo "$gpus"
mkdir -p "$folder/logs" || exit 2
bundle=$(cd "$bundle" && pwd)
folder=$(cd "$folder" && pwd)
table="$folder/table"
started=$(date +%s)
: >"$table"
status=0

# step NAME SECONDS: runs a step in a process of its own, with its output in a log; a line of the table for it.
step() {
    name=$1
    limit=$2
    began=$(date +%s)
    if GPU_CHECK_STEP=$name timeout "$limit" sh "$0" "$bundle" "$folder" >"$folder/logs/$name.log" 2>&1; then
        result=ok
    else
        code=$?
        result="failed, status $code"
        [ "$code" -eq 124 ] && result="stopped after $limit s"
        [ "$code" -eq "$UNFINISHED" ] && result="not finished: the same command goes on"
        [ "$code" -eq "$UNFINISHED" ] || status=1
    fi
    printf '%-10s %5s s  %s\n' "$name" "$(($(date +%s) - began))" "$result" >>"$table"
    echo "$name: $result"
    [ "$result" = ok ] || tail -n 15 "$folder/logs/$name.log"
    [ "$result" = ok ]
}

if step unpack 30 && step install 150; then
    step printed 240
    grep -E "right|left out|ok |LOW|HIGH" "$folder/logs/printed.log"
    step tests 300
    step device 420
    tail -n 20 "$folder/logs/device.log"
    step benchmark 240
    tail -n 20 "$folder/logs/benchmark.log"
    GPU_CHECK_LEFT=$((600 - $(date +%s) + started))
    export GPU_CHECK_LEFT
    if ! "$folder/venv/bin/python" -c "import torch" 2>/dev/null; then
        echo "network        0 s  left out: torch is not installed" >>"$table"
    elif [ "$GPU_CHECK_LEFT" -ge 60 ]; then
        step network "$((GPU_CHECK_LEFT + 60))"
        tail -n 20 "$folder/logs/network.log"
    else
        echo "network        0 s  left out: less than a minute is left of ten" >>"$table"
    fi
fi
echo
cat "$table"
exit "$status"
