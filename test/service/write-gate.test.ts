import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { METHODS } from '../../src/service/operations.ts';
import { Transport, type WriteGate } from '../../src/service/transport.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { drawFrom, openClient } from './calls.ts';
import { stubService, stubSocket } from './stub-service.ts';

const FIXTURES = new URL('../fixtures/service/tls/', import.meta.url);
const CERTIFICATE = readFileSync(new URL('localhost.cert.pem', FIXTURES));
const IDENTITY = { cert: CERTIFICATE, key: readFileSync(new URL('localhost.key.pem', FIXTURES)) };

test.each(METHODS)('write gate: a request that it refuses sends no byte (%s)', async (method) => {
  let received = 0;
  const service = await stubSocket((socket) => {
    socket.on('data', (bytes) => (received += bytes.length));
  });
  const refusal = new NoriaError('pace-held', 'too late');
  const gate: WriteGate = {
    beforeWrite: () => {
      throw refusal;
    },
    answered: () => {},
  };
  const call = openClient().extract(drawFrom(service.baseUrl, { method }), { gate });
  await expect(call).rejects.toBe(refusal);
  await until(
    'the connection was opened and has ended',
    () => service.accepted() === 1 && service.open.size === 0,
  );
  expect(received).toBe(0);
});

test('write gate: it is asked with an open connection, and learns of the head of the answer before its end', async () => {
  const events: string[] = [];
  let end = () => {};
  const service = await stubService((response) => {
    events.push('arrived');
    response.write('{"code":');
    end = () => response.end('"12009"}');
  });
  const gate: WriteGate = {
    beforeWrite: () => events.push(`asked with ${service.received.length} requests received`),
    answered: () => {
      events.push('answered');
      end();
    },
  };
  const { code } = await openClient().extract(drawFrom(service.baseUrl), { gate });
  events.push(code);
  expect(events).toEqual(['asked with 0 requests received', 'arrived', 'answered', '12009']);
});

test.each(['http', 'https'] as const)(
  'transport: a call without an answer resets its connection, so that nothing of it arrives later (%s)',
  async (scheme) => {
    const clock = new ManualClock();
    const endings: string[] = [];
    let received = 0;
    const serve = (socket: net.Socket) => {
      socket.on('error', (error: NodeJS.ErrnoException) => endings.push(error.code ?? ''));
      socket.on('end', () => endings.push('end'));
      socket.on('data', () => (received += 1));
    };
    const server = scheme === 'http' ? net.createServer(serve) : tls.createServer(IDENTITY, serve);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as net.AddressInfo;
    const url = new URL(`${scheme}://localhost:${port}/`);
    const trusted = tls.getCACertificates();
    tls.setDefaultCACertificates([...trusted, CERTIFICATE.toString()]);
    try {
      const signal = new AbortController().signal;
      const transport = await Transport.open(url, { clock, signal, timeoutMs: 500 });
      const failed = transport.exchange({ method: 'GET', url }).catch((error: Error) => error.message);
      await until('the request has arrived', () => received > 0);
      clock.advance(500);
      expect(await failed).toMatch(/did not answer within 500ms \(waiting for the start of the answer\)/);
      await until('the service sees the end', () => endings.length > 0);
      expect(endings[0]).toBe('ECONNRESET');
    } finally {
      tls.setDefaultCACertificates(trusted);
      server.close();
    }
  },
);

test('transport: a connection that the service closes before the request fails the call', async () => {
  const service = await stubSocket((socket) => socket.destroy());
  const signal = new AbortController().signal;
  const url = new URL(service.baseUrl);
  const transport = await Transport.open(url, { clock: systemClock, signal, timeoutMs: 60_000 });
  await until('it is closed', () => service.open.size === 0 && service.accepted() === 1);
  await expect(transport.exchange({ method: 'GET', url })).rejects.toMatchObject({
    code: 'service-transport',
  });
});
