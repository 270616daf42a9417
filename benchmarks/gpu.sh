#!/bin/sh
# What only a GPU can tell, the most important first, in ten minutes a call:
#
#   sh benchmarks/gpu.sh FOLDER                # all parts; the same command goes on where it stopped
#   sh benchmarks/gpu.sh FOLDER speed tests    # some of them
#   TRIAL=1 sh benchmarks/gpu.sh FOLDER        # all of them, tiny, on a CPU
#
# speed   the presets in whole passes, and the functions that take most Python
# tests   pytest -m gpu
# judge   The pocket model in SDXL's layout learns pictures of 512 px, where level 1 has 64 x 64 tokens. Then 20 prompts
#         are enlarged to 128 x 128 tokens with the presets and with plain steps. Look at samples/ first: if the
#         pictures are not clean, the numbers do not count.
#
# MINUTES of training, all calls together, and the interpreter PYTHON may be given as variables.

set -u
out=$(mkdir -p "${1:?the folder for all results}" && cd "$1" && pwd) || exit
shift
cd "$(dirname "$0")/.." || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
python=${PYTHON:-python3} begin=$(date +%s)
steps="10 20" small="" side=512 scenes=1600 batch=32 pictures=6 prompts=20 processes=8 seconds=150
minutes=${MINUTES:-5}
if [ "${TRIAL:-}" ]; then
    steps=6 small="--device cpu --layouts sd1 --channels 32 --sides 16 --turns 1 --seconds 0 --batch 2"
    side=64 scenes=12 batch=4 pictures=1 prompts=1 processes=1 seconds=20 minutes=${MINUTES:-0.1}
fi

limited() { # a command, for at most so many seconds and until the ten minutes are over
    left=$((begin + 590 - $(date +%s))) most=$1
    shift
    [ $left -lt "$most" ] && most=$left
    [ "$most" -lt 10 ] && echo "no time is left for: $*" && return 1
    echo "$(($(date +%s) - begin)) s: $*"
    timeout -s INT -k 5 "$most" "$@" || { echo "it ended with status $?" && return 1; }
}

speed() {
    set -- Balanced Closest Fast "ToDo only"
    [ "${TRIAL:-}" ] && set -- Balanced
    # shellcheck disable=SC2086
    limited 180 "$python" benchmarks/speed.py --parts passes python --settings "$@" --steps $steps --seconds 3 \
        --minutes 2.5 $small --out "$out/speed"
}

tests() {
    limited 90 "$python" -m pytest -q -m gpu -p no:cacheprovider --junit-xml "$out/tests.xml" \
        tests/todo_core/test_gpu.py
}

judge() {
    run=$out/training weights=$out/training/pocket-sdxl.safetensors
    set -- --out "$run" --layout sdxl --side $side --start benchmarks/weights/pocket-sdxl.safetensors.xz \
        --scenes $scenes --batch $batch --minutes "$minutes" --steps 1000000
    limited 540 "$python" -m todo_lab pocket train diffusion "$@" &&
        limited 60 "$python" -m todo_lab pocket train weights "$@" &&
        limited 60 "$python" -m todo_lab pocket pictures --weights "$weights" --side $side --count $pictures \
            --out "$out/samples" &&
        limited 300 "$python" -m todo_lab evaluate "$out/judge" --resume --weights "$weights" --sizes ${side}x$side \
            --grid docs/results/grid-judge.yaml --prompts docs/results/prompts-256.txt --limit $prompts \
            --runs 1 --untimed --engine processes --processes $processes --time-limit $seconds
}

status=0
[ $# -eq 0 ] && set -- speed tests judge
for part; do
    case $part in
    speed | tests | judge) $part || status=1 ;;
    *) echo "no such part: $part" && exit 2 ;;
    esac
done
echo "$(($(date +%s) - begin)) s: the end; all results are in $out"
exit $status
