/** A tunnel between a client and its target: dials while the client waits for its reply, then relays bytes. */
import type { DialRequest, DialResult, MemberConnection } from '../dialer/contract.ts';
import type { ClientConnection } from './client-connection.ts';
import { Relay } from './relay.ts';

/** A tunnel that got no byte back for this time may have a mute member. */
const MIN_MUTE_MS = 3_000;
/** While a client waits for a dial, noria stops reading from it after this number of bytes. */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * The caller has removed its own listeners. During the dial, noria reads from the client, because only a read shows
 * that it has disconnected: its close cancels the dial, and so does its end before it has sent anything for the
 * target.
 * @param received - what the client has already sent after its request.
 * @param reply - sends the reply to the client; closes the connection if the dial has failed.
 */
export function openTunnel(
  connection: ClientConnection,
  request: DialRequest,
  received: Buffer,
  reply: (result: DialResult) => void,
): void {
  const { socket } = connection;
  const chunks: Buffer[] = received.length === 0 ? [] : [received];
  let earlyBytes = received.length;
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
        reply(result);
        relayTunnel(connection, result.connection, chunks.length > 1 ? Buffer.concat(chunks) : chunks[0]);
      } else if (result.failure.code === 'client-gone') {
        socket.destroy();
      } else {
        connection.reportRefusal(result.failure.code, result.failure.reason, true);
        reply(result);
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
  const { record } = connection;
  const relay = new Relay(connection.socket, memberConnection.socket, {
    deadlines,
    idleTimeoutMs,
    lingerMs,
    startedAt,
    record,
    onEnd: () => {
      memberConnection.end({ cut: relay.cut, answered: relay.bytesDown > 0 });
      const bytesUp = relay.bytesUp + (switched?.bytesUp ?? 0);
      const bytesDown = relay.bytesDown + (switched?.bytesDown ?? 0);
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
  connection.beginTunnel(relay, () => {
    const { bytesUp, bytesDown, cut } = relay;
    if (switched !== undefined || bytesUp === 0 || bytesDown > 0 || cut) return;
    if (clock.monotonic() - startedAt < MIN_MUTE_MS) return;
    const fault = memberConnection.end({ cut: false, answered: false, mute: true });
    if (fault !== undefined) connection.outcome = fault;
  });
  relay.start(early, memberConnection.early);
}
