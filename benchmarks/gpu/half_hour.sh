#!/usr/bin/env bash
# Half an hour of a GPU in three calls of under ten minutes each, from the root of the repository:
#   bash benchmarks/gpu/half_hour.sh A   correctness, then the benchmarks of docs/performance.md
#   bash benchmarks/gpu/half_hour.sh B   ceilings, views, steps, profiles
#   bash benchmarks/gpu/half_hour.sh C   Table 6 of experiments/QUEUE.md; DATA is the folder of the sets
# Result files are left in benchmarks/results/ (A, B), logs, profiles and runs in OUT. DEVICE=cpu tries
# all of it in minutes, with a copy of the benchmarks, so that no result is replaced.
set -uo pipefail
part=${1:-}
DEVICE=${DEVICE:-cuda}
OUT=${OUT:-/tmp/gpu}
mkdir -p "$OUT"
benchmarks=benchmarks
tiny=()
if [ "$DEVICE" = cpu ]; then
  tiny=(--tiny)
  rm -rf "$OUT/benchmarks"
  cp -r benchmarks "$OUT/benchmarks"
  benchmarks=$OUT/benchmarks
fi
export PYTHONUNBUFFERED=1
failed=0

step() { # NAME SECONDS COMMAND...: one that takes too long leaves their time to the others
  local name=$1 limit=$2 began=$SECONDS code
  shift 2
  timeout -k 5 "$limit" "$@" >"$OUT/$part-$name.log" 2>&1
  code=$?
  [ "$code" = 0 ] || failed=1
  echo "== $part $name: exit $code, $((SECONDS - began)) s"
  tail -n 12 "$OUT/$part-$name.log"
  return "$code"
}

case $part in
A)
  views=(--images 512 --rounds 5) loss=()
  train=(--encoder resnet50 --recipe mast_c15_small --size 224 --steps 10 --rounds 2 --batch 128)
  if [ "$DEVICE" = cpu ]; then
    views=(--images 4 --rounds 1) loss=(--rounds 1) train=(--batch 8 --rounds 1)
  fi
  step check 160 python "$benchmarks/gpu/check.py" --device "$DEVICE" "${tiny[@]}"
  step augment 120 python "$benchmarks/augment.py" --device "$DEVICE" "${views[@]}"
  step loss 40 python "$benchmarks/loss.py" --device "$DEVICE" "${loss[@]}"
  step train 220 python "$benchmarks/train.py" --device "$DEVICE" "${train[@]}"
  ;;
B)
  step speed 560 python "$benchmarks/gpu/speed.py" --device "$DEVICE" --out "$OUT" "${tiny[@]}"
  ;;
C)
  todo=(--scale paper --epochs "${EPOCHS:-100}" --only "flowers17-*" --seeds 0 1 2)
  [ "$DEVICE" = cpu ] && todo=(--scale paper --epochs 1 --only "flowers17-untrained-*" --seeds 0)
  # what is finished is skipped when it is started again
  jobs=${JOBS:-6} pids=()
  for job in $(seq 0 $((jobs - 1))); do
    step "table6-$job" "${SECONDS_OF_C:-570}" python -m paper reproduce table6 "${todo[@]}" \
      --data "${DATA:-data}" --out "$OUT/runs" --device "$DEVICE" --shard "$job/$jobs" --threads 2 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  ;;
*)
  echo "usage: $0 A|B|C" >&2
  exit 2
  ;;
esac
exit "$failed"
