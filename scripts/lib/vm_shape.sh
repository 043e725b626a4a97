# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the other parts
# The shape of a virtual node: sockets, cores, threads, NUMA nodes with distances, and
# where its GPUs are. Sourced, never run.
#
# Firmware tells the kernel all of it, so what Slurm, NVML's stand-in and gpubind find in
# /sys is what they would find on such a machine.

sockets=2
vm_cpus=16
vm_memory=4096 # MiB
vm_gpus=8

# shape_vm NUMA: sets cores and threads (of a core), and qemu_shape, qemu's arguments.
shape_vm() {
    local numa=$1
    threads=2
    # Eight nodes of two CPUs: with two threads each would be a single core.
    [ "$numa" -lt 8 ] || threads=1
    cores=$((vm_cpus / sockets / threads))
    qemu_shape=()
    place_memory
    place_cpus
    place_gpus
}

place_memory() {
    local a b distance part=$((vm_memory / numa))
    qemu_shape+=(-m "${vm_memory}M")
    for ((a = 0; a < numa; a++)); do
        qemu_shape+=(-object "memory-backend-ram,id=memory$a,size=${part}M" -numa "node,nodeid=$a,memdev=memory$a")
    done
    for ((a = 0; a < numa; a++)); do
        for ((b = 0; b < numa; b++)); do
            distance=32
            [ $((a * sockets / numa)) -ne $((b * sockets / numa)) ] || distance=12
            [ "$a" -eq "$b" ] || qemu_shape+=(-numa "dist,src=$a,dst=$b,val=$distance")
        done
    done
}

# The threads of a core are neighbours: qemu names CPUs in no other order.
place_cpus() {
    local socket core
    qemu_shape+=(-smp "$vm_cpus,sockets=$sockets,cores=$cores,threads=$threads")
    for ((socket = 0; socket < sockets; socket++)); do
        for ((core = 0; core < cores; core++)); do
            qemu_shape+=(-numa "cpu,node-id=$(((socket * cores + core) * numa / (sockets * cores))),socket-id=$socket,core-id=$core")
        done
    done
}

# GPUs are devices behind a PCIe switch on a root of their own, in each NUMA node that has
# some. Not in the order of the nodes, as on many a real machine: the DGX A100 has its
# first GPUs at node 3.
place_gpus() {
    local nodes node gpu bus=0 slot=0 root_of
    case $numa in
    2) nodes=(1 0) ;;
    4) nodes=(1 0 3 2) ;;
    8) nodes=(3 1 7 5) ;;
    esac
    for node in "${nodes[@]}"; do
        bus=$((bus + 32)) slot=$((slot + 1)) root_of=node$node
        qemu_shape+=(-device "pxb-pcie,id=$root_of,bus_nr=$bus,numa_node=$node,bus=pcie.0"
            -device "pcie-root-port,id=$root_of.port,bus=$root_of,slot=$slot,chassis=$slot"
            -device "x3130-upstream,id=$root_of.switch,bus=$root_of.port")
        for ((gpu = 0; gpu < vm_gpus / ${#nodes[@]}; gpu++)); do
            slot=$((slot + 1))
            qemu_shape+=(-device "xio3130-downstream,id=$root_of.$gpu,bus=$root_of.switch,slot=$slot,chassis=$slot"
                -device "pci-testdev,bus=$root_of.$gpu")
        done
    done
}

# slurm.conf of the node. All limits that Slurm has are in effect.
vm_slurm_conf() {
    cat <<END
ClusterName=vm
SlurmctldHost=gpu1(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/share/log/slurmctld.log
SlurmdLogFile=/share/log/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
GresTypes=gpu
MpiDefault=none
ReturnToService=2
PropagateResourceLimits=NONE
# Quick rather than economical, and patient: an emulated machine is slow.
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
MessageTimeout=60
SlurmctldTimeout=300
SlurmdTimeout=300
KillWait=5
NodeName=gpu1 NodeAddr=127.0.0.1 Sockets=$sockets CoresPerSocket=$cores ThreadsPerCore=$threads RealMemory=$((vm_memory / 2)) Gres=gpu:$vm_gpus
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

vm_cgroup_conf() {
    cat <<END
CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
EnableControllers=yes
ConstrainDevices=yes
ConstrainCores=yes
ConstrainRAMSpace=yes
END
}
