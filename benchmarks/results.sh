#!/bin/sh
# Makes every committed result again that needs no GPU, at one commit, on this machine. gpu/run.sh
# makes the others.
#
#   benchmarks/results.sh [PART]...
#
# Parts are the names of ALL below; all of them, some hours, unless named. The tree has to be clean:
# a result names its commit. A part that fails does not stop the others; the last lines say what ran and
# what failed. Wants `make bench`, `make standin`, Chromium, and for the part `planner` INSTANCES, a folder
# with the published instances of planners (planner.py says how they are named), for the part `viewers`
# MEMORY_VIZ and D3, PyTorch's viewer and its d3 (viewers.py says where from), and for the parts of forecast
# LIBRARIES, a folder with the torchvision and transformers that were measured (forecast/compare.py), and for
# the part `others` OTHERS, folders with other people's programs between spaces (others/measure.py).
# TRACES may name more files for the parts `utilization` and `planner`. What needs none of these is made by
# the command that it records (result.py).
set -u
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-$PWD/.venv/bin/python}
STANDIN=${STANDIN:-$PWD/.venv-standin/bin/python}
failed=""

COMMIT=$("$PYTHON" benchmarks/commit.py) || exit 2

part() {
    name=$1
    shift
    echo "==== $name: $*"
    began=$(date +%s)
    "$@" || failed="$failed $name"
    echo "==== $name: $(($(date +%s) - began)) s"
}

ALL="speed plan_speed utilization utilization_varying planner opening
    viewers diagnose diagnose_scale diagnosed_programs diagnosed_mistakes fits forecast_errors
    forecast_fake_tensors inferred
    planned_steps wavelet papers others overhead_on_oom versions"
[ $# -gt 0 ] || set -- $ALL
wanted_parts=$*
for wanted in "$@"; do
    case " $(echo $ALL) " in
    *" $wanted "*) ;;
    *)
        echo "results.sh: no part is called '$wanted'; there are" $ALL >&2
        exit 2
        ;;
    esac
    # shellcheck disable=SC2086 # names of files, with blanks between
    case $wanted in
    speed | plan_speed | utilization_varying | opening)
        part "$wanted" "$PYTHON" benchmarks/result.py "$wanted"
        ;;
    utilization)
        part utilization "$PYTHON" benchmarks/utilization.py --fractions 1.003,1.02 \
            examples/traces/*.gmtrace ${TRACES:-} --write
        ;;
    planner)
        part planner "$PYTHON" benchmarks/planner.py --instances "${INSTANCES:?names a folder}" \
            --write ${TRACES:-}
        ;;
    viewers)
        part viewers "$PYTHON" benchmarks/viewers.py --viewer "${MEMORY_VIZ:?names MemoryViz.js}" \
            --d3 "${D3:?names d3.v5.min.js}" --write
        ;;
    forecast_errors | forecast_fake_tensors)
        part "$wanted" env PYTHONPATH="${LIBRARIES:?names a folder}" "$STANDIN" \
            benchmarks/result.py "$wanted"
        ;;
    papers)
        recordings=$(mktemp -d)
        part papers "$STANDIN" -m tests.standin --capacity 1024GiB benchmarks/papers/measure.py \
            "$recordings" --write
        rm -r "$recordings"
        ;;
    others)
        folders=""
        for folder in ${OTHERS:?names folders}; do folders="$folders --libraries $folder"; done
        part others "$STANDIN" benchmarks/others/measure.py $folders --write
        ;;
    versions) part versions "$PYTHON" benchmarks/versions.py --interface 2.13.0 2.14.1 2.15.0 ;;
    *) part "$wanted" "$STANDIN" benchmarks/result.py "$wanted" ;;
    esac
done

echo "ran at $COMMIT: $wanted_parts"
[ -z "$failed" ] || echo "failed:$failed" >&2
[ -z "$failed" ]
