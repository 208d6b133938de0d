#!/usr/bin/env bash
# A real Slurm of one node on this machine, for tests: munged, slurmctld and slurmd without systemd, cgroups or accounting.
# It has two GPU gres on files that are no GPUs, so it hands out and counts them, and nothing can compute on them; of CPUs
# and memory it claims more than there are, so that the jobs of an experiment fit.
#   tests/slurm/cluster.sh start FOLDER
#   tests/slurm/cluster.sh stop FOLDER
# Its configuration is linked to /etc/slurm, since Snakemake's plugin hides SLURM_CONF from the srun of a job; where another
# configuration stands there, nothing is started.
# Needs root and Debian's packages: apt-get install --no-install-recommends slurm-wlm munge
set -euo pipefail
action=$1
folder=$(realpath -m "$2")

stop() {
    # Jobs outlive the daemons: those that a failed test left are ended first.
    if [ -f "$folder/slurmctld.pid" ] && [ -n "$(timeout 10 squeue -h -o %i 2>/dev/null)" ]; then
        timeout 10 scancel --state=PENDING || true
        timeout 10 scancel --full --signal=KILL --state=RUNNING || true
        sleep 5
    fi
    for name in slurmd slurmctld; do
        [ -f "$folder/$name.pid" ] && kill "$(cat "$folder/$name.pid")" 2>/dev/null || true
    done
    [ -f "$folder/munge/munged.pid" ] && kill "$(cat "$folder/munge/munged.pid")" 2>/dev/null || true
}

for name in slurm.conf gres.conf; do
    if [ -e "/etc/slurm/$name" ] && [ ! -L "/etc/slurm/$name" ]; then
        echo "/etc/slurm/$name belongs to another Slurm; not touched" >&2
        exit 4
    fi
done
# One such cluster at a time: the links in /etc/slurm lead to it.
other=$(dirname "$(readlink /etc/slurm/slurm.conf || echo "$folder/slurm.conf")")
if [ "$action" = start ] && [ "$other" != "$folder" ] && kill -0 "$(cat "$other/slurmctld.pid" 2>/dev/null)" 2>/dev/null; then
    echo "another test's Slurm is running, of $other" >&2
    exit 3
fi
if [ "$action" = stop ]; then
    stop
    for name in slurm.conf gres.conf; do
        [ "$(readlink "/etc/slurm/$name")" = "$folder/$name" ] && rm "/etc/slurm/$name" || true
    done
    exit 0
fi

mkdir -p "$folder"/{state,spool,munge,log}
chmod 755 "$folder"
host=$(hostname -s)
# Free ports, so that several such clusters may live beside each other.
read -r control node < <(python3 - <<'PY'
import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))
PY
)
# Munge wants folders and a key of its own user, and a way there that not everybody may write to: in /run, not in /tmp.
munge=/run/munge-test-$$
mkdir -p "$munge"
head -c 1024 /dev/urandom >"$munge/key"
chown -R munge: "$munge"
chmod 755 "$munge"
chmod 400 "$munge/key"
ln -sfn "$munge" "$folder/munge/run"
setpriv --reuid munge --regid munge --init-groups munged --force --key-file "$munge/key" \
    --socket "$munge/socket" --pid-file "$munge/munged.pid" --log-file "$munge/log" --seed-file "$munge/seed"
cp "$munge/munged.pid" "$folder/munge/munged.pid"

cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control
SlurmdPort=$node
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$munge/socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmdParameters=config_overrides
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=bf_interval=5,sched_interval=5
KillWait=${KILL_WAIT:-30}
MinJobAge=3600
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=32 RealMemory=128000 Gres=gpu:fake:2 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
cat >"$folder/gres.conf" <<CONF
Name=gpu Type=fake File=/dev/null
Name=gpu Type=fake File=/dev/zero
CONF
mkdir -p /etc/slurm
ln -sfn "$folder"/slurm.conf "$folder"/gres.conf /etc/slurm/
unset SLURM_CONF
slurmctld -i
slurmd
for _ in $(seq 60); do
    sinfo -h -o %T 2>/dev/null | grep -q idle && exit 0
    sleep 0.5
done
echo "the node did not come up:" >&2
sinfo >&2 || true
tail -n 20 "$folder"/log/* >&2
stop
exit 1
