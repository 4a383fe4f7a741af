# Attempts of a hostile agent from inside, and needs of an honest one, the same for every driver.
# Each prints one line that begins with `held`, `ESCAPED`, `works` or `BROKEN`. The test fills in the
# words between @.

try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "ESCAPED: $name"; else echo "held: $name"; fi; }
can() { name=$1; shift; if output=$("$@" 2>&1); then echo "works: $name"; else echo "BROKEN: $name: $output"; fi; }
python() { timeout 10 python3 -c "$@"; }
unix() { python 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1].replace("@@", "\0"))' "$1"; }
tcp() { python 'import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)' "$@"; }
family() { python 'import socket,sys; socket.socket(int(sys.argv[1]), int(sys.argv[2]))' "$@"; }
# Succeeds if the call passes the filter, even if the kernel then rejects its arguments.
call() { python 'import ctypes,os,sys
c = ctypes.CDLL(None, use_errno=True)
c.syscall(*[ctypes.c_long(int(a, 0)) for a in sys.argv[1:]])
sys.exit(ctypes.get_errno() in (1, 38) or os.uname().machine != "x86_64")' "$@"; }

# Files of the host.
try 'the data directory' ls @DATA@
try 'the data directory through init' ls /proc/1/root@DATA@
try 'home of root' ls /root
try 'other homes' sh -c 'ls /home | grep -v "^agent$"'
try 'shadow' cat /etc/shadow
try 'host keys' ls /etc/ssh
try '/var' sh -c 'ls /var | grep -v "^tmp$"'
try '/run' ls /run
for path in /x /usr/x /usr/local/x /etc/x /bin/x /dev/x /greenroom/x /greenroom/bin/x /greenroom/run/gateway/x /home/x \
  /proc/sys/kernel/hostname; do try "write $path" sh -c ": >$path"; done
try 'device node' mknod /workspace/disk b 254 0

# The kernel and the machine.
for path in cmdline config.gz diskstats interrupts iomem kallsyms kcore keys modules partitions timer_list; do
  try "/proc/$path" sh -c "head -c 1 /proc/$path | grep -q ."; done
for path in acpi driver fs scsi; do try "/proc/$path" sh -c "ls -A /proc/$path | grep -q ."; done
try 'a smaller share of being killed' sh -c 'echo 0 >/proc/self/oom_score_adj'
try 'a smaller share of being killed, for others' sh -c 'sleep 5 & echo -1000 >/proc/$!/oom_score_adj'
try 'a smaller share of being killed, by a thread' sh -c 'echo 0 >/proc/thread-self/oom_score_adj'
try 'no share of being killed' sh -c '[ "$(cat /proc/self/oom_score_adj)" -lt 500 ]'
try 'a kernel setting' sh -c 'echo 1 >/proc/sys/vm/overcommit_memory'
try 'a crash of the machine' sh -c 'echo c >/proc/sysrq-trigger'

# Limits that users of a machine share.
more() { bash -c "[ \"\$(ulimit -H $1)\" = unlimited ] || [ \"\$(ulimit -H $1)\" -gt $2 ]"; }
try 'more open files' more -n 16384
try 'more queued signals' more -i 1024
try 'more memory in message queues' more -q 102400

# Sockets and networks of the host.
try 'docker socket' unix /var/run/docker.sock
try 'a unix socket of the host' unix @SOCKET@
try 'an abstract socket of the host' unix @@@ABSTRACT@
try 'a loopback service of the host' tcp 127.0.0.1 @PORT@
try 'cloud metadata' tcp 169.254.169.254 80
try 'the internet' tcp 1.1.1.1 443
try 'a hypervisor socket' family 40 1
try 'a packet socket' family 17 3
try 'a kernel crypto socket' family 38 5

# Processes of the host.
try 'a process of the host' ls /proc/@PID@
try 'a signal to the host' kill -0 @PID@

# Privileges.
try 'mount' mount -t tmpfs none /workspace
try 'unmount' umount /proc
try 'chroot' chroot /workspace /bin/true
try 'a user namespace' unshare -U true
try 'a mount namespace' unshare -m true
try 'a network namespace' unshare -rn true
try 'the namespaces of init' nsenter -t 1 -a true
try 'root' python 'import os; os.setuid(0)'
try 'any capability' sh -c 'grep ^Cap /proc/self/status | grep -v ":[[:space:]]*0*$"'
try 'another user' sh -c '[ "$(id -u)" != @UID@ ]'
try 'another group' sh -c '[ "$(id -G)" != @UID@ ]'
try 'root by su' su -c true
try 'clone3 with a user namespace' call 435 0 0
try 'clone with a user namespace' call 56 0x10000011 0 0 0 0
try 'bpf' call 321 0 0 0
try 'keyctl' call 250 0 -3 1
try 'io_uring' call 425 1 0
try 'userfaultfd' call 323 1
try 'a comparison of processes' call 312 1 1 0 0 0
try 'performance events' call 298 0 0 0 0 0
try 'kernel modules' call 313 -1 0 0
try 'a call by its x32 number' call 0x40000027
try 'keystrokes for another terminal' python 'import fcntl,pty,termios; fcntl.ioctl(pty.openpty()[1], termios.TIOCSTI, b"x")'

# Tools of everyday work.
can 'every signal' grep -q '^SigBlk:[[:space:]]*0*$' /proc/self/status
can 'the end of a child' sh -c '(exit 0) & (exit 0) & wait'
can 'bash' bash -c '[[ $(echo a | tr a b) == b ]]'
can 'python' python 'import json, ssl, sqlite3, threading; t = threading.Thread(target=print); t.start(); t.join()'
can 'python processes' python 'import multiprocessing as m; m.Pool(2).map(abs, [-1, 2])'
can 'git' sh -c 'mkdir -p g && cd g && git init -q . && git config user.email a@b && git config user.name a && echo a >a &&
  git add a && git commit -qm a && git mv a b && git status'
can 'gcc' sh -c 'echo "int main(void) { return 0; }" >a.c && gcc -o a.out a.c && ./a.out'
can 'node' sh -c 'command -v node || exit 0; node -e "require(\"child_process\").execSync(\"true\"); new Worker" || \
  node -e "new (require(\"worker_threads\").Worker)(\"1\", { eval: true })"'
can 'loopback' python 'import socket
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname(), 3); s.accept()'
can 'a terminal' python 'import os,pty; pty.openpty(); os.close(os.open("/dev/ptmx", os.O_RDWR))'
# `EMFILE`: another sandbox of the same user has used up the quota.
can 'message queues' python 'import ctypes, os; c = ctypes.CDLL(None, use_errno=True)
assert c.mq_open(b"/q", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0 or ctypes.get_errno() == 24'
can 'shared memory' sh -c 'echo a >/dev/shm/a && cat /dev/shm/a'
can 'a terminal of its own' sh -c 'grep -q "^devpts /dev/pts " /proc/mounts && [ "$(ls /dev/pts)" = ptmx ]'
can 'names of users' sh -c '[ "$(id -un)" = agent ] && [ "$(id -gn)" = agent ]'
can 'a home by the name of the user' python 'import os, pwd; assert pwd.getpwuid(os.getuid()).pw_dir == "/home/agent"'
can 'the environment of a user' sh -c '[ "$HOME $USER $LOGNAME $LANG" = "/home/agent agent agent C.UTF-8" ]'
can 'memory figures' grep -q '^MemAvailable:' /proc/meminfo
can 'processor figures' sh -c 'grep -q "^cpu " /proc/stat && grep -q . /proc/cpuinfo && [ "$(nproc)" -gt 0 ]'
can 'file system types' grep -q tmpfs /proc/filesystems
can 'watching files' python 'import ctypes; c = ctypes.CDLL(None, use_errno=True)
assert c.inotify_init1(0) >= 0 or ctypes.get_errno() == 24'
can 'descriptors by their path' sh -c 'echo a >/proc/self/fd/1 && echo a | cat /dev/fd/0'
can 'output by its path' bash -c 'echo a >/dev/stdout && cat <(echo a)'
can 'temporary files' sh -c 'cp /bin/sh "$(mktemp -d)/sh"'
can 'running what it made' sh -c 'cp /bin/true t && ./t'
can 'home' sh -c 'echo a >~/a'
can 'a debugger' python 'import ctypes,sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)'
can 'its own group' grep -q ':/$' /proc/self/cgroup
