#!/bin/bash
# kfuzz on the GPUs of several nodes: a cluster of Ray for the time of one job.
#
#   sbatch --nodes=4 slurm.sh kernels.py --profile nightly --max-time 4h
#
# Arguments are those of `kfuzz run`. The job runs where it was submitted, on a file
# system that all nodes see; kfuzz[ray] is installed in its .venv. Its exit code is
# kfuzz's.
#SBATCH --job-name=kfuzz
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=04:30:00
#SBATCH --signal=B:TERM@600
#SBATCH --output=kfuzz-%j.log
set -u
cd "$SLURM_SUBMIT_DIR" || exit 2
[ -f .venv/bin/activate ] && source .venv/bin/activate

# The batch script runs on the first node: that is the head.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Of several networks the first is taken, unless HEAD_IP says another. Jobs that meet
# on a node do not meet on a port.
ip=${HEAD_IP:-$(hostname -I | cut -d ' ' -f 1)}
export RAY_ADDRESS="$ip:$((20000 + SLURM_JOB_ID % 10000))"
# Whoever reaches a cluster of Ray runs code in it: this job alone has the key.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN
has=(--num-cpus "${SLURM_CPUS_PER_TASK:-1}" --num-gpus "${SLURM_GPUS_ON_NODE:-0}")

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address "$ip" --port "${RAY_ADDRESS##*:}" \
    --include-dashboard false --disable-usage-stats "${has[@]}" --block >"ray-$SLURM_JOB_ID-head.log" 2>&1 &
others=$((SLURM_JOB_NUM_NODES - 1))
if [ "$others" -gt 0 ]; then
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
        bash -c 'until ray health-check --address "$RAY_ADDRESS"; do sleep 2; done
                 exec ray start --address "$RAY_ADDRESS" --block "$@"' _ "${has[@]}" \
        >"ray-$SLURM_JOB_ID-nodes.log" 2>&1 &
fi
tries=0
until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ]; then
        echo "the head of Ray does not answer: see ray-$SLURM_JOB_ID-head.log" >&2
        exit 3
    fi
    sleep 2
done

# Nodes that come up later are used as they come. Slurm's warning ends the search
# cleanly, which tells what came of it.
kfuzz run --on ray "$@" &
run=$!
trap 'kill -TERM "$run"' TERM
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do # a signal had ended the wait
    wait "$run"
    code=$?
done
trap - TERM
kill $(jobs -p) 2>/dev/null
exit "$code"
