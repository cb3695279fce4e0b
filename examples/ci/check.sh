#!/bin/sh
# The gate for any CI: exit 0 where everything holds, 1 where something is not met, undecided or unreliable, 4 where the
# command is wrong, 5 where there is nothing to test. MODEL, DATA, REQUIRE and BASELINE may come from outside.
set -u

MODEL=${MODEL:-model.py:net@weights.safetensors}
DATA=${DATA:-dir:tests/images}
REQUIRE=${REQUIRE:-"robust>=0.40, robust[*]>=0.20"}
EPS=${EPS:-8/255}
TIME=${TIME:-5m}

set -- "$MODEL" --data "$DATA" --require "$REQUIRE" --eps "$EPS" --suite fast --time "$TIME" \
    --junit gate.xml --sarif gate.sarif --markdown gate.md --quiet
if [ -n "${BASELINE:-}" ]; then
    set -- "$@" --baseline "$BASELINE"
fi
exec assay check "$@"
