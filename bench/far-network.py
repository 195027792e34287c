"""Runs a command on a network whose far end is some milliseconds away. Needs root, or `unshare --map-root-user --net`.

    far-network.py ONE_WAY_MS COMMAND...

A packet to FAR enters a TUN device. After the delay it comes back with source and destination swapped, so that it reaches a
server on NEAR, and the server's answers take the same way. The swap leaves the checksums valid. So TCP connections to FAR are
real ones of this machine, and every packet of theirs is delayed, those of the connection's start included.
"""
import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

NEAR, FAR = '10.9.0.1', '10.9.0.2'  # bench/far.ts uses the same
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MAX_PACKET_BYTES = 65_536
QUEUE_PACKETS = 10_000


def open_tun(name):
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH', name.encode(), IFF_TUN | IFF_NO_PI))
    for words in (
        'link set lo up',
        f'addr add {NEAR}/24 dev {name}',
        f'link set {name} txqueuelen {QUEUE_PACKETS} up',
    ):
        subprocess.run(['ip', *words.split()], check=True)
    return fd


def relay(fd, delay, child):
    waiting = collections.deque()
    while child.poll() is None:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.2
        readable, _, _ = select.select([fd], [], [], timeout)
        if readable:
            try:
                while True:
                    packet = os.read(fd, MAX_PACKET_BYTES)
                    if packet[0] >> 4 == 4:  # the kernel sends IPv6 router solicitations, too
                        swapped = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
                        waiting.append((time.monotonic() + delay, swapped))
            except BlockingIOError:
                pass  # handled: everything is read
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            os.write(fd, waiting.popleft()[1])
    return child.returncode


def main():
    delay = float(sys.argv[1]) / 1000
    fd = open_tun('far')
    child = subprocess.Popen(sys.argv[2:])
    sys.exit(relay(fd, delay, child))


main()
