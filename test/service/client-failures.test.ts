import type { LookupFunction } from 'node:net';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { FAULTS } from '../../src/core/faults.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { drawFrom, faultOf, KEY, openClient } from './calls.ts';
import { closedPort, stubService, stubSocket } from './stub-service.ts';

test('client failures: a refused connection is reported with the address', async () => {
  const port = await closedPort();
  const fault = await faultOf(openClient().extract(drawFrom(`http://127.0.0.1:${port}`)));
  expect(fault.code).toBe('service-transport');
  expect(fault.message).toMatch(
    new RegExp(`^127\\.0\\.0\\.1:${port} refused the connection after \\d+ ms; check service\\.baseUrl`),
  );
  expect(fault.context).toMatchObject({ errno: 'ECONNREFUSED', phase: 'connection' });
});

test.each([
  ['at once', ''],
  ['in the head', 'HTTP/1.1 200 OK\r\nContent-Le'],
  ['in a body of known length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"code":"10001"'],
  ['in a chunked body', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"cod\r\n'],
])('client failures: a connection that is reset or closed %s is reported as incomplete', async (_, sent) => {
  for (const end of ['resetAndDestroy', 'end'] as const) {
    const service = await stubSocket((socket) => {
      socket.once('data', () => socket.write(sent, () => socket[end]()));
    });
    const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
    expect(fault.code).toBe('service-transport');
    expect(fault.message).toMatch(
      /^127\.0\.0\.1:\d+ closed the connection after \d+ ms, before the answer was complete$/,
    );
  }
});

test('client failures: a truncated body without a length is not understood', async () => {
  const service = await stubSocket((socket) => {
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\n{"code":"10001","data":{"proxy_li'));
  });
  const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
  expect(fault.code).toBe('service-protocol');
});

test.each([
  ['the start of the answer', ''],
  ['the start of the answer', 'HTTP/1.1 200 OK\r\nContent-Le'],
  ['the end of the answer', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"code":"10001"'],
])('client failures: a timeout names what the client waited for: %s after %j', async (what, sent) => {
  const clock = new ManualClock();
  const answered = Promise.withResolvers<void>();
  const service = await stubSocket((socket) => {
    socket.once('data', () => socket.write(sent, () => answered.resolve()));
  });
  const failed = faultOf(openClient({ clock, timeoutMs: 120 }).extract(drawFrom(service.baseUrl)));
  await answered.promise;
  await loopTurns();
  clock.advance(119);
  expect(clock.armedCount, 'it still waits').toBe(1);
  clock.advance(1);
  const fault = await failed;
  expect(fault.code).toBe('service-transport');
  expect(fault.message).toBe(
    `${service.host} did not answer within 120ms (waiting for ${what}); check the network, or raise service.timeout`,
  );
  await until('the connection has ended', () => service.open.size === 0);
});

test('client failures: the timeout also ends a body that trickles', async () => {
  const clock = new ManualClock();
  let drops = 0;
  const service = await stubService((response) => {
    const drip = setInterval(() => response.write('x', () => (drops += 1)), 1);
    response.on('close', () => clearInterval(drip));
  });
  const failed = faultOf(openClient({ clock, timeoutMs: 150 }).extract(drawFrom(service.baseUrl)));
  for (let step = 1; step <= 15; step += 1) {
    await until('more of the body has come', () => drops >= 2 * step);
    clock.advance(10);
  }
  expect((await failed).message).toMatch(/waiting for the end of the answer/);
});

/** Enough time to read what was written to a loopback socket. */
async function loopTurns(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((next) => setImmediate(next));
}

test('client failures: a timeout while resolving or connecting names the connection', async () => {
  const never: LookupFunction = () => {};
  const client = openClient({ timeoutMs: 80, lookup: never });
  const fault = await faultOf(client.extract(drawFrom('http://extract.test')));
  expect(fault.message).toMatch(/^extract\.test did not answer within 80ms \(waiting for the connection\)/);
});

test('client failures: a name that resolves after the timeout is not connected', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  let resolve = () => {};
  const late: LookupFunction = (_, __, done) => {
    resolve = () => done(null, [{ address: '127.0.0.1', family: 4 }]);
  };
  const client = openClient({ timeoutMs: 50, lookup: late });
  await faultOf(client.extract(drawFrom(`http://extract.test:${service.port}`)));
  resolve();
  // A late connection to the stub would arrive before the answer to this one.
  expect((await openClient().extract(drawFrom(service.baseUrl))).code).toBe('12009');
  await until('only the second call connected', () => service.open.size === 0);
  expect(service.received).toHaveLength(1);
  expect(service.accepted()).toBe(1);
});

test('client failures: several addresses that all refuse are one failure', async () => {
  const port = await closedPort();
  const several: LookupFunction = (_, __, done) => {
    process.nextTick(done, null, [
      { address: '127.0.0.9', family: 4 },
      { address: '127.0.0.1', family: 4 },
    ]);
  };
  const call = openClient({ lookup: several }).extract(drawFrom(`http://extract.test:${port}`));
  expect((await faultOf(call)).message).toMatch(/^extract\.test:\d+ refused the connection after/);
});

test('client failures: a name without an address is reported', async () => {
  const nowhere: LookupFunction = (hostname, _, done) => {
    const error = Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' });
    process.nextTick(done, error, []);
  };
  const client = openClient({ lookup: nowhere });
  const fault = await faultOf(client.extract(drawFrom('http://extract.test')));
  expect(fault.code).toBe('service-transport');
  expect(fault.message).toMatch(/^could not resolve extract\.test \(after \d+ ms\); check the host name/);
});

test('client failures: a failed TLS handshake is reported', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const fault = await faultOf(openClient().extract(drawFrom(`https://127.0.0.1:${service.port}`)));
  expect(fault.code).toBe('service-transport');
  expect(fault.message).toMatch(
    /^the TLS handshake with 127\.0\.0\.1:\d+ failed after \d+ ms \(\w+\); check its certificate, and whether/,
  );
});

test.each([
  'SSH-2.0-server\r\n',
  `no such request: akey=${KEY}\r\n`,
  `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`,
])('client failures: bytes that are not HTTP are reported (%#)', async (sent) => {
  const service = await stubSocket((socket) => {
    socket.once('data', () => socket.end(sent));
  });
  const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
  expect(fault.code).toBe('service-blocked');
  expect(fault.message).toBe(
    `${service.host} did not answer with HTTP; check the host, the port and http:// or https:// of the address`,
  );
});

test('client failures: a body over 1 MiB is refused, with or without a content-length', async () => {
  for (const announced of [true, false]) {
    const service = await stubService((response) => {
      if (announced) response.setHeader('content-length', 2 * 1024 * 1024);
      response.end(Buffer.alloc(2 * 1024 * 1024, 0x20));
    });
    const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
    expect(fault.code).toBe('service-protocol');
    expect(fault.message).toBe(
      `${service.host} sent more than 1 MiB, the limit of an answer; check service.baseUrl, or the source's own baseUrl, host or url`,
    );
  }
});

test('client failures: a body just under 1 MiB is accepted', async () => {
  const answer = '{"code":"12009"}';
  const service = await stubService((response) => response.end(answer.padEnd(1024 * 1024)));
  expect((await openClient().extract(drawFrom(service.baseUrl))).code).toBe('12009');
});

test.each([
  [403, '<html>blocked</html>'],
  [429, ''],
  [201, '{"code":"10001","data":[{"ip":"192.0.2.1","port":80}]}'],
  [204, ''],
])(
  'client failures: status %i without a code of the service is reported as a firewall',
  async (status, body) => {
    const service = await stubService((response) => response.writeHead(status).end(body));
    const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
    expect(fault.code).toBe('service-blocked');
    const quote = body === '' ? '' : `: ${body}`;
    expect(fault.message).toBe(
      `${service.host} answered with status ${status} instead of 200; perhaps a firewall blocks this machine${quote}`,
    );
    expect(fault.context).toEqual({ host: service.host, status });
  },
);

test.each([404, 405, 410, 501])(
  'client failures: status %i is a wrong address, not a firewall',
  async (status) => {
    const service = await stubService((response) => response.writeHead(status).end('<html>not found</html>'));
    const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
    expect(fault.code).toBe('service-not-found');
    expect(fault.message).toBe(
      `${service.host} does not have this operation (status ${status}); check service.baseUrl, or the source's own baseUrl, host or url: <html>not found</html>`,
    );
    const { summary, advice } = FAULTS[fault.code];
    expect(`${summary} ${advice}`).not.toMatch(/firewall/);
  },
);

test.each([
  [500, ''],
  [502, 'bad gateway'],
  [503, ''],
])('client failures: status %i is a failure of the service, or a firewall', async (status, body) => {
  const service = await stubService((response) => response.writeHead(status).end(body));
  const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
  expect(fault.code).toBe('service-blocked');
  const quote = body === '' ? '' : `: ${body}`;
  expect(fault.message).toBe(
    `${service.host} failed with status ${status}; the service may be down, or a firewall blocks this machine${quote}`,
  );
});

test.each([400, 403, 500])(
  'client failures: a code of the service is decoded with status %i',
  async (status) => {
    const service = await stubService((response) =>
      response.writeHead(status).end('{"code":"12001","msg":"x"}'),
    );
    expect(await openClient().extract(drawFrom(service.baseUrl))).toMatchObject({
      code: '12001',
      entries: [],
    });
  },
);

test.each([301, 302, 303, 307, 308])(
  'client failures: a redirect with status %i is not followed',
  async (status) => {
    const elsewhere = await stubService((response) => response.end('{"code":"12009"}'));
    const service = await stubService((response, { url }) => {
      response.writeHead(status, { location: `${elsewhere.baseUrl}${url}` }).end();
    });
    for (const method of ['GET', 'POST'] as const) {
      const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl, { method })));
      expect(fault.code).toBe('service-blocked');
      expect(fault.message).toBe(
        `${service.host} redirects to ${elsewhere.host} (status ${status}); noria follows no redirect, because that would send the key to another host; correct service.baseUrl, or the source's own baseUrl, host or url`,
      );
    }
    expect(elsewhere.received).toEqual([]);
    expect(service.received).toHaveLength(2);
  },
);

test('client failures: the quote of an answer contains no key', async () => {
  const service = await stubService((response, { url }) =>
    response.writeHead(404).end(`no such page: ${url}`),
  );
  const fault = await faultOf(openClient().extract(drawFrom(service.baseUrl)));
  expect(fault.message).toContain('akey=[secret]&count=2');
  expect(fault.message).not.toContain(KEY);
});

test('client failures: a name with IPv4 and IPv6 addresses is called over IPv4', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const both: LookupFunction = (_, __, done) => {
    process.nextTick(done, null, [
      { address: '2001:db8::1', family: 6 },
      { address: '127.0.0.1', family: 4 },
    ]);
  };
  const client = openClient({ lookup: both });
  expect((await client.extract(drawFrom(`http://extract.test:${service.port}`))).code).toBe('12009');
  expect(service.received[0]?.headers.host).toBe(`extract.test:${service.port}`);
});

test('client failures: the next address is tried when one refuses', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const several: LookupFunction = (_, __, done) => {
    process.nextTick(done, null, [
      { address: '127.0.0.9', family: 4 },
      { address: '127.0.0.1', family: 4 },
    ]);
  };
  const client = openClient({ lookup: several, clock: systemClock });
  expect((await client.extract(drawFrom(`http://extract.test:${service.port}`))).code).toBe('12009');
});
