/** Listening sockets that were handed over to noria (`fd:3`): each can be opened once. */
import type { ListenerConfig } from '../config/config.ts';
import { NoriaError } from '../core/faults.ts';

export class InheritedSockets {
  readonly #fds: ReadonlySet<number>;
  /** Their numbers may stand for something else once they have been closed. */
  readonly #used = new Set<number>();

  constructor(fds: ReadonlySet<number>) {
    this.#fds = fds;
  }

  /**
   * Takes the descriptor that an address names; nothing happens for one that names none.
   *
   * @throws NoriaError listen-failed when it was not handed over, or was opened before: it cannot be opened anew, so what a
   *   reload changes on such a listener waits for a restart, in which the service manager keeps the socket.
   */
  claim(address: ListenerConfig['address']): void {
    if (address.kind !== 'fd') return;
    const { fd } = address;
    if (!this.#fds.has(fd)) {
      const why =
        'no such socket was handed over; start noria by a systemd socket unit, or listen on host:port';
      throw new NoriaError('listen-failed', `cannot listen on fd:${fd}: ${why}`);
    }
    if (this.#used.has(fd)) {
      const why = 'a socket that was handed over can be opened once; restart noria to change this listener';
      throw new NoriaError('listen-failed', `cannot listen on fd:${fd}: ${why}`);
    }
    this.#used.add(fd);
  }
}
