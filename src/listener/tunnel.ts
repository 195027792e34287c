/** A tunnel between a client and its target: dials while the client waits for its reply, then relays bytes. */
import type { DialFailure, DialRequest, DialResult, MemberConnection } from '../dialer/contract.ts';
import type { ClientConnection } from './client-connection.ts';
import { relay } from './relay.ts';

export interface TunnelClient {
  /** What the client has already sent after its request. */
  readonly received: Buffer;
  accept(memberConnection: MemberConnection): void;
  refuse(failure: DialFailure): void;
}

/** A tunnel that got no byte back for this time may have a mute member. */
const MIN_MUTE_MS = 3_000;
/** While a client waits for a dial, noria stops reading from it after this number of bytes. */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * The caller has removed its own listeners. During the dial, noria reads from the client, because only a read shows
 * that it has disconnected: its close cancels the dial, and so does its end before it has sent anything for the
 * target.
 */
export function openTunnel(connection: ClientConnection, request: DialRequest, client: TunnelClient): void {
  const { socket } = connection;
  const chunks: Buffer[] = client.received.length === 0 ? [] : [client.received];
  let earlyBytes = client.received.length;
  let isOver = false;

  const onData = (chunk: Buffer): void => {
    chunks.push(chunk);
    earlyBytes += chunk.length;
    if (earlyBytes >= MAX_EARLY_BYTES) socket.pause();
  };
  const onEnd = (): void => {
    if (earlyBytes === 0) connection.dialing?.cancel();
  };
  const onResult = (result: DialResult): void => {
    isOver = true;
    connection.dialing = undefined;
    // No data is lost: it can only arrive after this function has returned, and by then the relay listens for it.
    socket.off('data', onData).off('end', onEnd);
    try {
      if (result.ok) {
        client.accept(result.connection);
        relayTunnel(connection, result.connection, chunks.length > 1 ? Buffer.concat(chunks) : chunks[0]);
      } else {
        refuse(connection, client, result.failure);
      }
    } catch (error) {
      connection.fail(error);
    }
  };

  socket.on('data', onData).on('end', onEnd);
  if (socket.isPaused()) socket.resume();
  // If `dial` throws, the caller closes the client's connection.
  const dialing = connection.options.dialer.dial(request, onResult);
  if (isOver) return;
  connection.dialing = dialing;
  if (socket.destroyed || (socket.readableEnded && earlyBytes === 0)) dialing.cancel();
}

function refuse(connection: ClientConnection, client: TunnelClient, failure: DialFailure): void {
  if (failure.code === 'client-gone') {
    connection.destroy();
    return;
  }
  connection.reportFailedDial(failure);
  client.refuse(failure);
}

/**
 * Ends the lease and emits `tunnel.closed` when both have ended. In the same tick before, the caller must reply to
 * the client and remove its own listeners. @param early - what the client has sent after its request.
 * @param switched - what the request and the answer to it, a 101, took on the member's connection.
 */
export function relayTunnel(
  connection: ClientConnection,
  memberConnection: MemberConnection,
  early: Buffer | undefined,
  switched?: { readonly bytesUp: number; readonly bytesDown: number },
): void {
  const { deadlines, idleTimeoutMs, lingerMs, clock, bus } = connection.options;
  const startedAt = clock.monotonic();
  const { source, member } = memberConnection.lease;
  connection.beginTunnel();
  const { record } = connection;
  let ended = false;
  const counts = relay(connection.socket, memberConnection, early, {
    deadlines,
    idleTimeoutMs,
    lingerMs,
    startedAt,
    record,
    onEnd: (relayed) => {
      ended = true;
      memberConnection.end({ cut: relayed.cut, answered: relayed.bytesDown > 0 });
      const bytesUp = relayed.bytesUp + (switched?.bytesUp ?? 0);
      const bytesDown = relayed.bytesDown + (switched?.bytesDown ?? 0);
      const ms = clock.monotonic() - startedAt;
      const request = record?.id;
      bus.emit('tunnel.closed', { source, member, kind: 'tunnel', bytesUp, bytesDown, ms, request });
      if (record !== undefined) {
        record.bytesUp += bytesUp;
        record.bytesDown += bytesDown;
      }
      connection.endRequest();
    },
  });
  if (!ended) connection.relayed = counts;
  connection.onTunnelClosing = () => {
    const { bytesUp, bytesDown, cut } = counts;
    if (switched !== undefined || bytesUp === 0 || bytesDown > 0 || cut) return;
    if (clock.monotonic() - startedAt < MIN_MUTE_MS) return;
    const fault = memberConnection.end({ cut: false, answered: false, mute: true });
    if (fault !== undefined) connection.setOutcome(fault);
  };
}
