/**
 * A dialer on sockets without a network, and a clock that the test moves: the test decides at which moment a member connects,
 * answers or fails, so every time is exact.
 */
import { Socket } from 'node:net';
import type { DialerOptions } from '../../src/dialer/dialer.ts';
import type { OpenSocket } from '../../src/dialer/member-socket.ts';
import { ManualClock } from '../support/manual-clock.ts';
import type { FakePoolMember } from './fake-pool.ts';
import { makeDialer } from './make-dialer.ts';

/** @param uses - receives the use of each socket. */
export function scriptedSockets() {
  const opened: { readonly port: number; readonly use: string; readonly socket: Socket; written: string }[] =
    [];
  const openSocket: OpenSocket = ({ port }, use) => {
    const socket = new Socket({ allowHalfOpen: true }).on('error', () => {}); // ignored: 'close' follows
    const entry = { port, use, socket, written: '' };
    socket.write = (bytes: string | Uint8Array) => {
      entry.written += Buffer.from(bytes as string, 'latin1').toString('latin1');
      return true;
    };
    opened.push(entry);
    return socket;
  };
  return { opened, openSocket };
}

/** What a dial has ended with: nothing here takes time, so it is there now, or never. */
export function ended<Result>(result: Promise<Result>): Promise<Result> {
  const late = new Promise<never>((_, reject) => {
    setImmediate(() => reject(new Error('the dial has not ended')));
  });
  return Promise.race([result, late]);
}

/** The members have the ports 1, 2 and so on, in the order of their leases. */
export function makeScriptedDialer(
  members: readonly (string | (Partial<FakePoolMember> & { readonly id: string }))[],
  settings: Partial<DialerOptions> = {},
) {
  const clock = ManualClock.dayOld();
  const { opened, openSocket } = scriptedSockets();
  const ports = new Map<string, number>();
  const memberOf = (given: (typeof members)[number], protocol: FakePoolMember['at']['protocol'] = 'http') => {
    const member = typeof given === 'string' ? { id: given } : given;
    const port = ports.get(member.id) ?? ports.size + 1;
    ports.set(member.id, port);
    return { at: { protocol, host: '192.0.2.1', port }, ...member };
  };
  const kit = makeDialer(
    members.map((member) => memberOf(member)),
    { clock, openSocket, ...settings },
  );
  const events: string[] = [];
  kit.bus.on('dial.attempted', ({ member, outcome, phase, blame, ms, hedge }) =>
    events.push(`${member} ${outcome} ${phase} ${blame} ${ms}${hedge ? ' hedge' : ''}`),
  );
  kit.bus.on('hedge.ended', ({ outcome }) => events.push(`hedge ${outcome}`));
  /** The latest socket to a member. */
  const socketOf = (id: string) => {
    const socket = opened.findLast(({ port }) => port === ports.get(id))?.socket;
    if (socket === undefined) throw new Error(`noria opened no connection to ${id}`);
    return socket;
  };
  /** How many connections noria has opened to each of these members. */
  const openedTo = (...ids: string[]) =>
    ids.map((id) => opened.filter(({ port }) => port === ports.get(id)).length);
  const connect = (id: string) => void socketOf(id).emit('connect');
  const say = (id: string, text: string) => void socketOf(id).emit('data', Buffer.from(text, 'latin1'));
  /** The member answers the request with this status, after `ms`. */
  const answer = (id: string, status: number, ms = 0) => {
    clock.advance(ms);
    connect(id);
    say(id, `HTTP/1.1 ${status} X\r\n\r\n`);
  };
  /** The connection closes, by default without an error. */
  const close = (id: string, code?: string) => {
    const socket = socketOf(id);
    if (code !== undefined)
      Object.defineProperty(socket, 'errored', { value: Object.assign(new Error(code), { code }) });
    socket.emit('close');
  };
  return { ...kit, clock, opened, events, memberOf, socketOf, openedTo, connect, say, answer, close };
}
