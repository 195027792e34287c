/**
 * A fake Dialer without members: each member connection is a plain connection to the target. When the test ends, each lease
 * must have ended, that of a forwarded request exactly once.
 */

import type { Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import type {
  ConnectionOutcome,
  Dialer,
  DialFailure,
  Dialing,
  DialRequest,
  DialResult,
  MemberConnection,
} from '../../src/dialer/contract.ts';
import type { SiteResponse } from '../../src/dialer/evidence.ts';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import { until } from '../support/until.ts';

export interface DirectDialer extends Dialer {
  /** All requests in order, without the field `client`. */
  readonly requests: DialRequest[];
  /** The field `client` of each request. */
  readonly clients: (string | undefined)[];
  /** What the dialer learnt of each response. */
  readonly responses: SiteResponse[];
  /** The outcome of each lease, in the order in which they ended, without what `answered` and `responses` have. */
  readonly ended: (Omit<ConnectionOutcome, 'answered' | 'firstByteMs' | 'response'> & {
    readonly member: string;
  })[];
  /** Whether the target answered, for each lease. */
  readonly answered: (boolean | undefined)[];
  /** When the first part of a response came after the request, for each lease. */
  readonly firstByteMs: (number | undefined)[];
  /** The number of dials that the listener has cancelled. */
  cancelled: number;
  /** The sockets of the member connections, in order of dialing. */
  readonly sockets: Socket[];
  /** Failures of the next dials. When the list is empty, dials connect again. */
  readonly failures: DialFailure[];
  /** Delays every dial until the returned function is called. */
  hold(): () => void;
}

export interface DirectDialerOptions {
  /** If set, member connections have the forward mode `absolute` and these credentials. */
  readonly absolute?: { readonly proxyAuthorization?: string };
  /** If set, all connections go to this port instead of to their target. */
  readonly to?: { readonly port: number };
  /** Whether the dialer keeps returned connections and uses each of them once more. */
  readonly reuse?: boolean;
  /** Whether the dialer takes no member for mute. */
  readonly trusting?: boolean;
  /** Fields of the member connections to override. */
  readonly overrides?: Partial<MemberConnection>;
}

const CLIENT_GONE: DialFailure = { code: 'client-gone', reason: 'The client left.', attempts: 0 };

export function directDialer(options: DirectDialerOptions = {}): DirectDialer {
  let memberCount = 0;
  let gate: Promise<void> = Promise.resolve();
  const idle: Socket[] = [];
  const open = new Set<string>();
  const dialer: DirectDialer = {
    requests: [],
    clients: [],
    ended: [],
    responses: [],
    answered: [],
    firstByteMs: [],
    cancelled: 0,
    sockets: [],
    failures: [],
    hold() {
      const { promise, resolve } = Promise.withResolvers<void>();
      gate = promise;
      return resolve;
    },
    dial(request, done): Dialing {
      const { client, ...routing } = request.routing;
      dialer.clients.push(client);
      dialer.requests.push({ ...request, routing });
      memberCount += 1;
      const member = `m${memberCount}`;
      let cancelled = false;
      const connected = async (): Promise<DialResult> => {
        await gate;
        if (cancelled) return { ok: false, failure: CLIENT_GONE };
        const failure = dialer.failures.shift();
        if (failure !== undefined) return { ok: false, failure };
        const kept = request.use === 'forward' && request.noReuse !== true ? idle.shift() : undefined;
        const socket =
          kept ??
          (await openSocket(
            options.to === undefined ? request.target : { ...options.to, host: '127.0.0.1' },
            request.use,
          ));
        if (cancelled) {
          socket?.destroy();
          return { ok: false, failure: CLIENT_GONE };
        }
        if (socket === undefined) {
          return {
            ok: false,
            failure: { code: 'members-failed', reason: 'Could not connect.', attempts: 1 },
          };
        }
        dialer.sockets.push(socket);
        open.add(member);
        const connection: MemberConnection = {
          socket,
          early: Buffer.alloc(0),
          forwardMode: options.absolute === undefined ? 'direct' : 'absolute',
          ...options.absolute,
          reused: kept !== undefined,
          isMemberError: () => false,
          lease: { member, source: 'city' },
          attempts: 1,
          end({ answered, firstByteMs, response, ...outcome }) {
            if (!open.delete(member) && request.use === 'forward')
              throw new Error(`${member} has ended twice`);
            if (response !== undefined) dialer.responses.push(response);
            dialer.answered.push(answered);
            dialer.firstByteMs.push(firstByteMs);
            dialer.ended.push({ ...outcome, member });
            if (outcome.keep === true && options.reuse === true) idle.push(socket);
            else socket.destroy();
            return outcome.mute === true && options.trusting !== true ? 'member-mute' : undefined;
          },
          ...options.overrides,
        };
        return { ok: true, connection };
      };
      void connected().then(done);
      return {
        cancel() {
          if (!cancelled) dialer.cancelled += 1;
          cancelled = true;
        },
      };
    },
  };
  onTestFinished(async () => {
    await until('the end of each lease', () => open.size === 0, 30_000);
    for (const socket of dialer.sockets) socket.destroy();
  });
  return dialer;
}

const openMemberSocket = memberSockets();

function openSocket(
  { port, host }: { readonly port: number; readonly host: string },
  use: DialRequest['use'],
): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = openMemberSocket({ protocol: 'http', port, host }, use);
    socket.once('connect', () => {
      socket.pause();
      resolve(socket);
    });
    socket.on('error', () => resolve(undefined));
  });
}
