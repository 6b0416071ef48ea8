#!/usr/bin/env bash
# Every test and bench that needs a card, on a machine that has one: run from the folder that tests/gpu/pack.sh
# packed, unpacked there. Prints a table; everything also goes to $OUT (./out where it is not set). Ends with 1
# when a test failed. Under ten minutes on one H200.
#
#   tar xJf bloomery-gpu.tar.xz && bloomery-gpu/tests/gpu/run.sh [quick|hybrid|cards]
#
# quick: tests alone. hybrid: also a whole model with recurrent layers, tests and bench, a minute more.
# cards: for a machine with several, what is about them and nothing else, on those that BLOOMERY_TEST_CARDS
# names (CUDA0,CUDA1); under six minutes on two H200. HOST_GIB: what such a machine's host may take, where
# its memory shows itself late.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-$PWD/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$PWD/lib BLOOMERY_SOURCE_DIR=$PWD BLOOMERY_BINARY_DIR=$PWD
log=$out/tests.txt
: >"$log"
failed=0
rows=()

# step NAME SECONDS COMMAND…: one row of the table.
step() {
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  { echo; echo "== $name"; timeout "$limit" "$@" 2>&1; } >>"$log"
  local status=$?
  [ $status = 0 ] || failed=1
  local tests
  tests=$(tac "$log" | sed '/^== /q' | grep -oE '\[  PASSED  \] [0-9]+|\[  FAILED  \] [0-9]+ test|ERROR SUMMARY: [0-9]+ error|RACECHECK SUMMARY: [0-9]+ hazard' |
    sort -u | tr '\n' ' ')
  rows+=("| $name | $([ $status = 0 ] && echo passed || echo "FAILED ($status)") | $tests| $((SECONDS - start)) s |")
}

fixture() { [ -s "$1" ] || bin/bloomery fixture --arch qwen3moe --layers 48 --type Q4_K_M --vocab 151936 "$1" >>"$log" 2>&1; }
# What was found, as a table: of all tests.
report() {
  {
    echo "Commit $(cat commit), $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sort | uniq -c), $(nproc) cores"
    echo
    echo '| test | result | | time |'
    echo '|---|---|---|---|'
    printf '%s\n' "${rows[@]}"
  } | tee "$out/card.md"
}
show_failures() {
  [ $failed = 0 ] || { grep -E 'FAILED|Failure|beside others' -A6 "$log" | head -60; exit 1; }
}

model=${MODEL:-/tmp/bloomery-qwen3-30b-a3b-shape.gguf}
mode=${1:-}
[ "$mode" = quick ] || fixture "$model" &
# Three layers of integer weights, all of them recurrent: nothing of such a model is a band on a card.
recurrent=/tmp/bloomery-recurrent.gguf
bin/bloomery fixture --arch qwen35moe --layers 3 --type Q4_K_M --set width=512 --set experts=16 "$recurrent" >>"$log" 2>&1
export BLOOMERY_TEST_RECURRENT=$recurrent
# Sliding layers of integer weights: of their prompts attention alone is a band.
sliding=/tmp/bloomery-sliding.gguf
bin/bloomery fixture --arch mimo2 --layers 4 --type MXFP4 --vocab 2048 --set interval=2 --set width=512 --set heads=8 --set kv_heads=4 \
  --set kv_heads_full=2 --set window=32 --set ff=768 --set experts=16 --set experts_used=4 --set expert_ff=256 "$sliding" >>"$log" 2>&1
export BLOOMERY_TEST_SLIDING=$sliding

# The tests of the CPU that hold for cards, on those of $1.
oracles_on() {
  # Goldens of the float32 column; hidden states and the router's logits, whose bounds are tighter than what
  # float weights of prompts keep on a card, are looked at on the CPU, and so are bits of prompts of such weights;
  # chunks of the delta rule are of the CPU.
  BLOOMERY_TEST_DEVICE=$1 step "oracles on $1" 90 bin/test_oracle \
    --gtest_filter='MiniQwen3moe.*:MiniQwen35moe.*:MiniMimo2.*:Seedling.*:PromptCacheSeat.*:-*HiddenStates*:*3e4*:*SameBitsInAnyBatch*:MiniMimo2.ASlotIsCutBack*:*Chunks*'
  # Passes of up to 8 rows there: beyond, prompts of float weights are a band.
  BLOOMERY_TEST_DEVICE=$1 step "drafts on $1: answers with them are those without" 90 bin/test_drafts
}
# Seats in stages: every bit is one card's.
stages='CardStages.*:CardStages/*:-*WholeModel*:*CardHybridModel*'
stages_whole='CardStages.*WholeModel*:CardStages/*WholeModel*:CardStages/CardMemory.*'

if [ "$mode" = cards ]; then
  export BLOOMERY_TEST_CARDS=${BLOOMERY_TEST_CARDS:-CUDA0,CUDA1} BLOOMERY_TEST_HOST_GIB=${HOST_GIB:-96}
  cards=$BLOOMERY_TEST_CARDS
  step "several cards: every bit is one card's" 150 bin/gpu_test_seat --gtest_filter="$stages"
  oracles_on "$cards"
  step "server on several cards: first request, eight streams each equal to itself alone" 60 \
    python3 tests/gpu/serve_check.py bin/bloomery-serve "$cards"
  step "server on several cards: a model that is split, and its slots on disk" 90 \
    python3 tests/gpu/split_check.py bin/bloomery-serve bin/bloomery "$cards"
  if command -v compute-sanitizer >/dev/null; then
    # A second seat finds the way between the cards open: the driver answers so, which is no error.
    step "memcheck: stages" 100 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 bin/gpu_test_seat \
      --gtest_filter='CardStages.TheBestLogits*:CardStages.PicksCounts*:CardStages.PartsOfChunks*'
  else
    rows+=("| memcheck | not run: there is no compute-sanitizer here | | |")
  fi
  wait
  BLOOMERY_TEST_MODEL=$model step "a whole model of 48 layers on several cards: decode = CPU bit for bit, split as well, prompt = one card" 200 \
    bin/gpu_test_seat --gtest_filter="$stages_whole"
  report
  {
    # Arms take turns within each table.
    echo
    timeout 60 bin/gpu_bench_stages "$model" || failed=1  # other bits
    echo
    timeout 90 bin/gpu_bench_residency "$model" "8 GiB a card" devices="CUDA0/$cards" budgets=8 policies=on texts=2 rounds=2 host="$BLOOMERY_TEST_HOST_GIB"
    timeout 60 bin/gpu_bench_residency "$model" "8 GiB a card, prompts" devices="CUDA0/$cards" budgets=8 policies=on ids=random prompt=4096 ubatch=4096 \
      tokens=32 texts=2 rounds=2 host="$BLOOMERY_TEST_HOST_GIB"
    # By the flags, as a user has it.
    for device in CUDA0 "$cards" CUDA0 "$cards"; do
      timeout 30 bin/bloomery bench -m "$model" -dev "$device" -p 512,2048 -n 128 -np 1 -r 3 | grep '^| Q'
    done
    timeout 30 bin/bloomery bench -m "$model" -dev "$cards" -ts 3,1 -p 512 -n 128 -np 1 -r 3 | grep '^| Q'
  } >"$out/bench.md" 2>"$out/bench.err"
  cat "$out/bench.md"
  sort -u "$out/bench.err" | head -20
  show_failures
  exit 0
fi

step "kernels against the references" 120 bin/gpu_test_kernels
step "seat: decode = CPU bit for bit, rows, replay, slots" 90 bin/gpu_test_seat --gtest_filter='-*WholeModel*:CardStages*'
step "several cards (one card twice): every bit is one card's" 120 bin/gpu_test_seat --gtest_filter="$stages"
oracles_on CUDA0
oracles_on CUDA0,CUDA0
step "server: first request, eight streams each equal to itself alone" 60 python3 tests/gpu/serve_check.py bin/bloomery-serve
step "server: a model that is split, by itself and asked to, and its slots on disk" 90 python3 tests/gpu/split_check.py bin/bloomery-serve bin/bloomery
if command -v compute-sanitizer >/dev/null; then
  # One model, decode of single rows and a prompt: every kind of launch of both kinds of programs.
  step "memcheck" 100 compute-sanitizer --tool memcheck --error-exitcode 9 bin/gpu_test_seat --gtest_filter='OneCard/CardSeat.TheBestLogits*'
  step "racecheck" 100 compute-sanitizer --tool racecheck --error-exitcode 9 bin/gpu_test_seat --gtest_filter='OneCard/CardSeat.TheBestLogits*'
  # The kernels of the measured shape, which no model of the tests has.
  for tool in memcheck racecheck; do
    step "$tool: all layers in one launch, experts of few rows" 100 compute-sanitizer --tool $tool --error-exitcode 9 \
      bin/gpu_test_kernels --gtest_filter='CardOneRowLayers.OneLayer*:CardRowsExperts.FewRowsAt*'
  done
  step "memcheck: sliding layers" 100 compute-sanitizer --tool memcheck --error-exitcode 9 bin/gpu_test_seat \
    --gtest_filter='OneCard/CardSliding.LaunchesOneByOne*:OneCard/CardSliding.ASlotIsCopied*'
  step "racecheck: attention of windows, rings and sinks" 100 compute-sanitizer --tool racecheck --error-exitcode 9 bin/gpu_test_kernels \
    --gtest_filter='CardAttention.ASlidingLayerAt*'
  # Hand-offs, experts that come for a prompt, moves; not racecheck, under which the card waits for a
  # host that waits for it.
  step "memcheck: banks split between card and host" 150 compute-sanitizer --tool memcheck --error-exitcode 9 \
    bin/gpu_test_seat --gtest_filter='OneCard/CardSplit.PicksAreCounted*:OneCard/CardSplit.ASlotBeside*:OneCard/CardResidency.BitsStay*'
  # Not of split banks: under the sanitizer the second stage's launch waits for the first one's end on the same
  # card, and that for the host.
  step "memcheck: stages" 100 compute-sanitizer --tool memcheck --error-exitcode 9 bin/gpu_test_seat \
    --gtest_filter='CardStages.TheBestLogits*:CardStages.PartsOfChunks*:CardStages.LogitsOfEveryPart*'
else
  rows+=("| memcheck, racecheck | not run: there is no compute-sanitizer here | | |")
fi
wait
[ "$mode" = quick ] || BLOOMERY_TEST_MODEL=$model step "a whole model of 48 layers: decode = CPU bit for bit, split as well, prompt in its band" 180 \
  bin/gpu_test_seat --gtest_filter='OneCard/CardWholeModel.*:CardWholeModel.*:OneCard/CardDrafts.WindowsOfAWholeModel*:CardStages.AWholeModel*'
hybrid=/tmp/bloomery-qwen3.6-35b-a3b-shape.gguf
if [ "$mode" = hybrid ]; then
  bin/bloomery fixture --arch qwen35moe --layers 40 --type Q4_K_M --vocab 248320 "$hybrid" >>"$log" 2>&1
  BLOOMERY_TEST_HYBRID=$hybrid step "a hybrid model of 40 layers: decode = CPU bit for bit" 90 \
    bin/gpu_test_seat --gtest_filter='*CardHybridModel.*:*CardDrafts.WindowsOfAWholeModel*'
fi
report
if [ "$mode" != quick ]; then
  {
    echo; echo '```'
    timeout 60 bin/gpu_bench_kernels
    echo '```'; echo
    timeout 100 bin/bloomery bench -m "$model" -dev CUDA0 -p 512 -n 128 -np 1,8 -r 5
    timeout 60 bin/bloomery bench -m "$model" -dev CUDA0 -ub 4096 -p 4096 -n 0 -r 5 | grep '^| Q'
    timeout 60 bin/bloomery bench -m "$model" -dev CUDA0 -p 0 -n 128 -d 4096 -r 5 | grep '^| Q'
    echo
    timeout 60 bin/bloomery bench -m "$model" -dev CUDA0 -p 512 -n 32 -r 1 -o steps | grep '^|'
    echo
    timeout 90 bin/gpu_bench_split "$model" -2 74 43
    echo
    timeout 60 bin/gpu_bench_drafts "$model"
    if [ "$mode" = hybrid ]; then
      timeout 60 bin/bloomery bench -m "$hybrid" -dev CUDA0 -p 512 -n 128 -np 1,8 -r 3
      timeout 60 bin/bloomery bench -m "$hybrid" -dev CUDA0 -ub 4096 -p 4096 -n 0 -r 3 | grep '^| Q'
      timeout 60 bin/bloomery bench -m "$hybrid" -dev CUDA0 -p 0 -n 128 -d 4096 -r 3 | grep '^| Q'
    fi
  } >"$out/bench.md" 2>"$out/bench.err"
  cat "$out/bench.md"
  sort -u "$out/bench.err" | head -5
fi
show_failures
