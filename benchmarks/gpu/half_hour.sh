#!/usr/bin/env bash
# Half an hour of a GPU in three calls of under ten minutes each, from the root of the repository:
#   bash benchmarks/gpu/half_hour.sh A   correctness, then the GPU's column of docs/performance.md
#   bash benchmarks/gpu/half_hour.sh B   ceilings, views, steps, profiles
#   bash benchmarks/gpu/half_hour.sh C   the first unfinished entry of experiments/QUEUE.md
# DEVICE=cpu tries the same, tiny. Result files are left in benchmarks/results/ (A, B) and in OUT (C).
set -uo pipefail
part=$1
DEVICE=${DEVICE:-cuda}
OUT=${OUT:-/tmp/gpu}
tiny=()
[ "$DEVICE" = cpu ] && tiny=(--tiny)
mkdir -p "$OUT"
export PYTHONUNBUFFERED=1

step() { # NAME SECONDS COMMAND...: one that takes too long leaves their time to the others
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  timeout -k 5 "$limit" "$@" >"$OUT/$part-$name.log" 2>&1
  echo "== $part $name: exit $?, $((SECONDS - began)) s"
  tail -n 12 "$OUT/$part-$name.log"
}

case $part in
A)
  step check 240 python benchmarks/gpu/check.py --device "$DEVICE" "${tiny[@]}"
  if [ "$DEVICE" = cpu ]; then
    views=(--images 4 --rounds 1) train=(--batch 8 --rounds 1)
  else
    views=(--images 512 --rounds 7)
    train=(--encoder resnet50 --recipe mast15_small --size 224 --steps 10 --rounds 2 --batch 256)
  fi
  step augment 120 python benchmarks/augment.py --device "$DEVICE" "${views[@]}"
  step loss 40 python benchmarks/loss.py --device "$DEVICE"
  step train 180 python benchmarks/train.py --device "$DEVICE" "${train[@]}"
  ;;
B)
  step speed 560 python benchmarks/gpu/speed.py --device "$DEVICE" --out "$OUT" "${tiny[@]}"
  ;;
C)
  # Table 6 on Flowers-17 at the paper's scale; what is finished is skipped when it is started again.
  if [ "$DEVICE" = cpu ]; then
    todo=(small --only "cifar10/vicreg5-1" --seeds 0 --dry)
  else
    todo=(table6 --scale paper --epochs "${EPOCHS:-100}" --only "flowers17-*" --seeds 0 1 2)
  fi
  step table6 570 mast reproduce "${todo[@]}" --data "${DATA:-data}" --out "$OUT" --device "$DEVICE"
  ;;
*)
  echo "usage: $0 A|B|C" >&2
  exit 2
  ;;
esac
