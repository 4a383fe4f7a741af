# Takes what the kernel counts per user. With the argument `all`, takes all of it, reports that in
# the file `taken`, and keeps it. Otherwise takes one of each, and reports in the file `got` what it
# got.
import ctypes, os, signal, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
flight, _held = socket.socketpair()
flight.setblocking(False)
queues = iter(range(10000))


def sends_descriptors():
    try:
        socket.send_fds(flight, [b"x"], [0] * 250)
        return True
    except OSError:
        return False


TAKES = {
    "inotify instances": lambda: libc.inotify_init1(0) >= 0,
    "queued signals": lambda: libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) == 0,
    "descriptors in flight": sends_descriptors,
    "message queues": lambda: libc.mq_open(b"/q%d" % next(queues), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0,
}
if sys.argv[1:] == ["all"]:
    for take in TAKES.values():
        while take():
            pass
    open("/workspace/taken", "w").close()
    time.sleep(1000)
with open("/workspace/.got", "w") as got:
    got.writelines(f"{name}\n" for name, take in TAKES.items() if take())
os.rename("/workspace/.got", "/workspace/got")
