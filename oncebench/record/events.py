"""The events of a run's `timeline.jsonl`: the name of each, and what it means.

A line is {"t_us", "event", ...}, with `t_us` in microseconds since the epoch. The line of a fault also has `hit_us`:
the `t_us` of the failpoint hit that began the fault. Other fields are named below.

Promise: stored runs have these names, so a name and its meaning never change. The SQL auditor has its own copy of the
names that it reads.

`stopped` is a suspension (SIGSTOP) that `continued` ends, except in PIPELINE_STOPPED. `nemesis` is Jepsen's word for a
fault.
"""

# The run.
LOAD_STARTED = "load-started"  # the load generators start
LOAD_DONE = "load-done"  # the load generators have ended
PROCESS_DIED = "process-died"  # a generator or an observer ended before its work was done: `name`, `why`
INTERRUPTED = "interrupted"  # a gentle stop was requested, in this `phase`. Also an end, without `phase`: see DRAINED
# The end of a run, with the `position` of the pipeline and the `ends` of its input.
DRAINED = "drained"  # everything the load sent was processed and committed
STALLED = "stalled"  # the time of the run was over before all was processed, or the pipeline ended for good (`why`)
START_TIMED_OUT = "start-timed-out"  # the time of the run was over while an attempt was alive and starting

# The attempts of the pipeline.
PIPELINE_STARTED = "pipeline-started"  # an attempt began: `pid`. `tells_over`: this run writes NEMESIS_OVER
PIPELINE_KILLED = "pipeline-killed"  # by a failpoint or a fault
PIPELINE_FAILED = "pipeline-failed"  # ended by itself, also during a fault: `exit_code`, `why`
PIPELINE_STOPPED = "pipeline-stopped"  # ended gently (SIGTERM)
PIPELINE_CONTINUED = "pipeline-continued"  # runs on after a fault had it suspended
RANDOM_KILL = "random-kill"  # at a random time. `landed`: the failpoint that the attempt passed last, or None.
#   `commit_held`, before an outage: whether the pipeline was committing a transaction. `idle`: it had no work left
SPARK_WORKER_REPLACED = "spark-worker-replaced"  # a failpoint killed a worker of the run's cluster; a new one starts

# Every fault.
NEMESIS_IDLE = "nemesis-idle"  # the `fault` had no target, so the run did not exercise it: `why`
NEMESIS_OVER = "nemesis-over"  # the fault ended by itself; the line is missing if the end of the run ended the fault

# Faults of the pipeline's processes, each with its `pid`.
WORKER_KILLED = "worker-killed"  # a Python worker
WORKER_STOPPED = "worker-stopped"  # the worker is suspended
WORKER_CONTINUED = "worker-continued"  # the worker runs on
EXECUTOR_KILLED = "executor-killed"  # the JVM of an executor
EXECUTOR_STOPPED = "executor-stopped"  # the JVM is suspended; its Python workers run on
EXECUTOR_CONTINUED = "executor-continued"  # the JVM runs on
ZOMBIE_LEFT = "zombie-left"  # an attempt stays suspended, and its successor starts
ZOMBIE_CONTINUED = "zombie-continued"  # the older attempt runs on beside its successor
ZOMBIE_ENDED = "zombie-ended"  # the older attempt ended by itself: `exit_code`, `why`
ZOMBIE_OUTLIVED = "zombie-outlived"  # the older attempt still ran when the fault was ended
ZOMBIE_NEVER_CONTINUED = "zombie-never-continued"  # the older attempt was still suspended when the fault was ended

# Faults of the checkpoint and of its settings.
CHECKPOINT_DAMAGED = "checkpoint-damaged"  # an attempt starts on a damaged or older checkpoint
REFUSED = "refused"  # that attempt, or one with another number of partitions, ended by itself: `why`
UNREFUSED = "unrefused"  # that attempt committed, claimed or decided a batch

# Faults of a server that the suite started.
BROKER_KILLED = "broker-killed"  # SIGKILL
BROKER_ENDED = "broker-ended"  # shut down cleanly
BROKER_STOPPED = "broker-stopped"  # suspended: connections stay open, and nothing answers
BROKER_CONTINUED = "broker-continued"  # runs on
BROKER_HALTED = "broker-halted"  # because its disk is full
BROKER_BACK = "broker-back"  # runs again: `broker`, the number of the broker, if there are several
POSTGRES_KILLED = "postgres-killed"  # with all its sessions (SIGKILL)
POSTGRES_ENDED = "postgres-ended"  # shut down cleanly
POSTGRES_STOPPED = "postgres-stopped"  # suspended, with all its sessions
POSTGRES_CONTINUED = "postgres-continued"  # runs on
POSTGRES_BACK = "postgres-back"  # runs again, or has recovered after the kill of a session
SESSION_KILLED = "session-killed"  # a PostgreSQL session of the pipeline: `pid`
SESSION_STOPPED = "session-stopped"  # suspended, with its locks: `pid`
SESSION_CONTINUED = "session-continued"  # runs on: `pid`
HIJACKED = "hijacked"  # another producer took over this `transactional_id`
HIJACK_FAILED = "hijack-failed"  # the other producer could not take it over: `why`
DISK_FULL = "disk-full"  # the disk of this `folder`
DISK_HAS_ROOM = "disk-has-room"  # the disk of this `folder` has room again

# Faults of one broker of several: its number is `broker`. `leads` is the partition that chose it.
LEADER_KILLED = "leader-killed"  # SIGKILL
LEADER_ENDS = "leader-ends"  # begins to shut down cleanly
LEADER_STOPPED = "leader-stopped"  # suspended: connections stay open, and nothing answers
LEADER_CONTINUED = "leader-continued"  # `moved_to`: the broker that led meanwhile
LEADER_ISOLATED = "leader-isolated"  # cut off from the other brokers, and not from clients
LEADER_RECONNECTED = "leader-reconnected"  # `moved_to`: the broker that led meanwhile
LEADER_MOVED = "leader-moved"  # `broker` leads the partition instead
BROKER_ENDS = "broker-ends"  # a broker of a rolling restart begins to shut down cleanly
REPLICA_KILLED = "replica-killed"  # a follower (SIGKILL): the leader takes rows alone
LEADER_UNCLEAN = "leader-unclean"  # `broker` leads without the last `lost_offsets` of the partition
TOO_FEW_REPLICAS = "too-few-replicas"  # the broker is away while topics require all replicas (`required`)

# Faults of the connection between the pipeline and a server.
LINK_CUT = "link-cut"  # connections close, and new ones fail
LINK_MENDED = "link-mended"  # the pipeline reaches the server again
COMMIT_HELD = "commit-held"  # the request that ends a transaction is held back
COMMIT_ARRIVED = "commit-arrived"  # the broker has answered the request that was held back: `error_code`
REQUEST_CAUGHT = "request-caught"  # the answer to this request will be lost
ANSWER_LOST = "answer-lost"  # the answer was dropped. It has an `error_code`, or PostgreSQL's outcome
