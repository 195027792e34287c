/**
 * A process with a listener on the socket that it inherited as file descriptor 3. It ends when its standard input ends.
 */
import { systemClock } from '../../src/core/clock.ts';
import { Deadlines } from '../../src/core/deadlines.ts';
import { EventBus } from '../../src/core/events.ts';
import { Access } from '../../src/listener/access.ts';
import { openListener } from '../../src/listener/listener.ts';

const listener = await openListener({
  name: 'fd:3',
  addresses: [{ kind: 'fd', fd: 3 }],
  protocols: ['http'],
  access: new Access({ users: [], allow: [], denyTargets: [], clock: systemClock }),
  desk: {
    clients: {
      describe: () => {
        throw new Error('unused');
      },
      judge: () => 'unknown',
    },
    lastUse: () => undefined,
    rotateSession: () => false,
    closeTunnels: () => {},
  },
  dialer: {
    dial: () => ({
      result: Promise.resolve({ ok: false, failure: { code: 'pool-empty', reason: '', attempts: 0 } }),
      cancel: () => {},
    }),
  },
  bus: new EventBus(() => {}),
  clock: systemClock,
  deadlines: new Deadlines(systemClock, 10),
  session: 'none',
  sourceNames: () => [],
  idleTimeoutMs: 600_000,
  lingerMs: 600_000,
  headerTimeoutMs: 600_000,
  handshakeTimeoutMs: 600_000,
  maxConnections: 10,
  allowNonLoopback: false,
});
process.stdout.write('ready\n');
process.stdin.resume().on('end', () => {
  void listener.close();
});
