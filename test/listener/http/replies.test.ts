import { describe, expect, test } from 'vitest';
import { FAULTS, type Fault, type FaultCode } from '../../../src/core/faults.ts';
import { successHeaders } from '../../../src/listener/http/header-fields.ts';
import { formatReply, type HttpReply, refusalReply } from '../../../src/listener/http/replies.ts';

const CODES = Object.keys(FAULTS) as FaultCode[];

function header(headers: readonly (readonly [string, string])[], name: string): string | undefined {
  return headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
}

describe('replies: the fault table', () => {
  test('replies: a code with an HTTP status is sent as itself, any other as internal', () => {
    expect(CODES.length).toBeGreaterThan(20);
    for (const code of CODES) {
      const fault: Fault = FAULTS[code];
      const sent = fault.http === undefined ? 'internal' : code;
      const row: Fault = FAULTS[sent];
      const { status, reasonPhrase, headers, body } = refusalReply({ code });
      expect(status, code).toBe(row.http);
      expect(reasonPhrase, code).not.toBe('');
      expect(header(headers, 'X-Noria-Error'), code).toBe(sent);
      expect(header(headers, 'Proxy-Status'), code).toMatch(
        new RegExp(`^noria; error=${row.proxyStatus ?? 'proxy_internal_error'}; details="${sent}"$`),
      );
      expect(header(headers, 'Content-Length'), code).toBe(String(Buffer.byteLength(body)));
      expect(header(headers, 'Content-Type'), code).toBe('text/plain; charset=utf-8');
      expect(body, code).toBe(`${row.summary} ${row.advice}\n`);
    }
  });
});

describe('replies: headers and body of a refusal', () => {
  test('replies: Retry-After is in whole seconds, rounded up, and always sent for an empty pool', () => {
    const after = (retryAfterMs: number) =>
      header(refusalReply({ code: 'pool-empty', retryAfterMs }).headers, 'Retry-After');
    expect([0, 1, 1_000, 1_001, 9_500].map(after)).toEqual(['1', '1', '1', '2', '10']);
    expect(header(refusalReply({ code: 'pool-empty' }).headers, 'Retry-After')).toBe('60');
    expect(header(refusalReply({ code: 'members-failed' }).headers, 'Retry-After')).toBeUndefined();
  });

  test('replies: no Retry-After and no sources if waiting does not help', () => {
    const sources = [{ name: 'city', state: 'ready', reason: '', nextDrawMs: 3_000 }];
    const reason = 'no source has members there';
    const { headers, body } = refusalReply({ code: 'bad-routing', reason, retryAfterMs: 3_000, sources });
    expect(header(headers, 'Retry-After')).toBeUndefined();
    expect(body).toContain('No source has members there.');
    expect(body).not.toContain('city');
  });

  test('replies: only 407 has a challenge, for Basic in UTF-8', () => {
    for (const code of CODES) {
      const { status, headers } = refusalReply({ code });
      const challenge = status === 407 ? 'Basic realm="noria", charset="UTF-8"' : undefined;
      expect(header(headers, 'Proxy-Authenticate'), code).toBe(challenge);
    }
    expect(refusalReply({ code: 'auth-required' }).status).toBe(407);
  });

  test('replies: a target that refuses the connection has its own Proxy-Status token', () => {
    const { headers } = refusalReply({ code: 'target-unreachable', targetRefused: true, attempts: 2 });
    expect(header(headers, 'Proxy-Status')).toBe(
      'noria; error=connection_refused; details="target-unreachable"',
    );
    expect(header(headers, 'X-Noria-Attempts')).toBe('2');
    const other = refusalReply({ code: 'members-failed', targetRefused: true });
    expect(header(other.headers, 'Proxy-Status')).not.toContain('connection_refused');
  });

  test('replies: attempts and tried members are named only if there are some', () => {
    const attempt = (member: string) => ({
      member,
      source: 'city',
      exit: null,
      ms: 1,
      code: null,
      startedAt: 0,
    });
    const record = { attempts: ['m1', 'm2', 'm1'].map(attempt) };
    const some = refusalReply({ code: 'members-failed', attempts: 3 }, [], record).headers;
    expect([header(some, 'X-Noria-Attempts'), header(some, 'X-Noria-Tried')]).toEqual(['3', 'm1, m2']);
    for (const attempts of [undefined, 0]) {
      const refusal = { code: 'members-failed' as const, ...(attempts === 0 && { attempts }) };
      const none = refusalReply(refusal, [], { attempts: [] }).headers;
      expect([header(none, 'X-Noria-Attempts'), header(none, 'X-Noria-Tried')]).toEqual([
        undefined,
        undefined,
      ]);
    }
  });

  test('replies: sentences in Chinese follow each other without a space', () => {
    const { body } = refusalReply({ code: 'pool-empty' }, [['Accept-Language', 'zh-CN']]);
    expect(body).toMatch(/^[\u4e00-\u9fff].*\n$/);
    expect(body).not.toMatch(/。 /);
  });

  test('replies: the body for an empty pool states the reason, each source and the advice in one paragraph', () => {
    const { body } = refusalReply({
      code: 'pool-empty',
      reason: 'waited 15 s for a member\nof any source',
      retryAfterMs: 3_200,
      sources: [
        { name: 'city', state: 'waiting', reason: 'the pace allows one draw in 10 s', nextDrawMs: 3_200 },
        { name: 'other', state: 'halted', reason: 'the key is wrong (12001)' },
        { name: 'third', state: 'drawing', reason: '' },
      ],
    });
    expect(body).toBe(
      'No member became available in time. Waited 15 s for a member of any source. ' +
        'Source city: waiting (the pace allows one draw in 10 s), next draw in 4 s. ' +
        'Source other: halted (the key is wrong (12001)). ' +
        'Source third: drawing. ' +
        'Try again after the time in Retry-After; noria status shows what each source waits for.\n',
    );
  });
});

test.each([
  [undefined, ''],
  ['', ''],
  ['a reason', ' A reason.'],
  ['a question?', ' A question?'],
  ['with an end.', ' With an end.'],
  ['two  spaces\tand a tab!', ' Two spaces and a tab!'],
])('replies: the reason %j is a sentence of the body', (reason, expected) => {
  const { summary, advice } = FAULTS.forbidden;
  const { body } = refusalReply({ code: 'forbidden', ...(reason !== undefined && { reason }) });
  expect(body).toBe(`${summary}${expected} ${advice}\n`);
});

test('replies: as bytes, with Connection and with or without the body', () => {
  const reply: HttpReply = { status: 404, reasonPhrase: 'Not Found', headers: [['A', 'b']], body: 'text' };
  const head = (connection: string) => `HTTP/1.1 404 Not Found\r\nA: b\r\nConnection: ${connection}\r\n\r\n`;
  expect(formatReply(reply, true)).toBe(`${head('keep-alive')}text`);
  expect(formatReply(reply, false)).toBe(`${head('close')}text`);
  expect(formatReply(reply, true, false)).toBe(head('keep-alive'));
});

describe('replies: headers of a successful response', () => {
  const headers = (more = {}) => successHeaders({ member: 'm7', ...more }, 2);

  test('replies: the member and the attempts are always sent, other headers if known', () => {
    expect(headers()).toEqual([
      ['X-Noria-Member', 'm7'],
      ['X-Noria-Attempts', '2'],
    ]);
    expect(headers({ exitIp: '203.0.113.9', remainingMs: 61_999, session: 'ann:abc' })).toEqual([
      ['X-Noria-Member', 'm7'],
      ['X-Noria-Attempts', '2'],
      ['X-Noria-Exit', '203.0.113.9'],
      ['X-Noria-Expires-In', '61'],
      ['X-Noria-Session', 'ann:abc'],
    ]);
    expect(header(headers({ remainingMs: -5 }), 'X-Noria-Expires-In')).toBe('0');
  });

  test('replies: a session is percent-encoded so that it fits a header and a path', () => {
    const session = 'mü ller%\r\n:abc';
    const sent = header(headers({ session }), 'X-Noria-Session') ?? '';
    expect(sent).toBe('m%C3%BC%20ller%25%0D%0A:abc');
    expect(decodeURIComponent(sent)).toBe(session);
  });
});
