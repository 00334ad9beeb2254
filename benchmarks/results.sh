#!/bin/sh
# Makes every committed result again that needs no GPU, at one commit, on this machine. gpu/run.sh
# makes the others.
#
#   benchmarks/results.sh [PART]...
#
# Parts are the names of ALL below; all of them, some hours, unless named. The tree has to be clean:
# a result names its commit. A part that fails does not stop the others; the last lines say what ran and
# what failed. Wants `make bench`, `make standin`, for the part `planner` INSTANCES, a folder with the published
# instances of planners (planner.py says how they are named), and for the part `forecast_errors` LIBRARIES, a
# folder with the torchvision and transformers that were measured (forecast/compare.py). TRACES may name more
# files for the parts `utilization` and `planner`. What needs none of these is made by the command that it
# records (result.py).
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

ALL="speed utilization utilization_varying planner forecast_errors versions"
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
    speed | utilization_varying)
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
    forecast_errors)
        part forecast_errors env PYTHONPATH="${LIBRARIES:?names a folder}" "$STANDIN" \
            benchmarks/result.py forecast_errors
        ;;
    versions) part versions "$PYTHON" benchmarks/versions.py --interface 2.13.0 2.14.1 2.15.0 ;;
    esac
done

echo "ran at $COMMIT: $wanted_parts"
[ -z "$failed" ] || echo "failed:$failed" >&2
[ -z "$failed" ]
