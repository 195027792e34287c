/** A SOCKS5 and SOCKS4 server for the members of the benchmark. It reads messages from a stream, however they are split. */
import type { Socket } from 'node:net';

/** Connects to the port on loopback and joins both sides. */
export type Reach = (client: Socket, port: number, answer: Buffer, rest: Buffer) => void;

export const MEMBER_LOGIN = { username: '202611210001', password: 'bench-password' } as const;

const NO_LOGIN = 0;
const LOGIN = 2;
const NO_METHOD = 255;
const SOCKS5_DONE = Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
const SOCKS4_DONE = Buffer.from([0, 0x5a, 0, 0, 0, 0, 0, 0]);
const LOGIN_BYTES = 3 + MEMBER_LOGIN.username.length + MEMBER_LOGIN.password.length;

/** @param isLoginRequired - SOCKS5 only; the server accepts any login of the right length. */
export function serveSocksMember(client: Socket, isLoginRequired: boolean, reach: Reach): void {
  let phase: 'greeting' | 'login' | 'request' = 'greeting';
  let pending: Buffer = Buffer.alloc(0);
  const onData = (bytes: Buffer) => {
    pending = pending.length === 0 ? bytes : Buffer.concat([pending, bytes]);
    for (;;) {
      const length = phase === 'login' ? LOGIN_BYTES : messageBytes(pending, phase);
      if (length === undefined || pending.length < length) return;
      const message = pending.subarray(0, length);
      pending = pending.subarray(length);
      if (phase === 'greeting' && message[0] === 5) {
        const method = isLoginRequired ? LOGIN : NO_LOGIN;
        const isOffered = message.subarray(2).includes(method);
        if (!isOffered) return void client.end(Buffer.from([5, NO_METHOD]));
        client.write(Buffer.from([5, method]));
        phase = isLoginRequired ? 'login' : 'request';
      } else if (phase === 'login') {
        client.write(Buffer.from([1, 0]));
        phase = 'request';
      } else {
        client.off('data', onData);
        const isSocks4 = message[0] === 4;
        const port = message.readUInt16BE(isSocks4 ? 2 : length - 2);
        reach(client, port, isSocks4 ? SOCKS4_DONE : SOCKS5_DONE, pending);
        return;
      }
    }
  };
  client.on('data', onData);
}

/** Returns the length of the first message; undefined until it is known. */
function messageBytes(bytes: Buffer, phase: 'greeting' | 'request'): number | undefined {
  if (bytes[0] === 4) {
    const end = bytes.indexOf(0, 8); // supports only an empty user id and IPv4
    return end < 0 ? undefined : end + 1;
  }
  if (phase === 'greeting') return bytes.length < 2 ? undefined : 2 + (bytes[1] ?? 0);
  if (bytes.length < 5) return undefined;
  return bytes[3] === 1 ? 10 : 7 + (bytes[4] ?? 0);
}
