import { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { FAULTS, type Fault, type FaultCode, NoriaError } from '../../../src/core/faults.ts';
import type { MemberConnection } from '../../../src/dialer/dial.ts';
import {
  refusalReply,
  refusedBy,
  socks5ReplyCode,
  successHeaders,
} from '../../../src/listener/http/replies.ts';

const CODES = Object.keys(FAULTS) as FaultCode[];

function header(headers: readonly (readonly [string, string])[], name: string): string | undefined {
  return headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
}

describe('replies: one table for every failure', () => {
  test('replies: a code with a status is told over HTTP by its own row, any other as internal', () => {
    expect(CODES.length).toBeGreaterThan(20);
    for (const code of CODES) {
      const fault: Fault = FAULTS[code];
      const told = fault.http === undefined ? 'internal' : code;
      const row: Fault = FAULTS[told];
      const { status, reasonPhrase, headers, body } = refusalReply({ code });
      expect(status, code).toBe(row.http);
      expect(reasonPhrase, code).not.toBe('');
      expect(header(headers, 'X-Noria-Error'), code).toBe(told);
      expect(header(headers, 'Proxy-Status'), code).toMatch(
        new RegExp(`^noria; error=${row.proxyStatus ?? 'proxy_internal_error'}; details="${told}"$`),
      );
      expect(header(headers, 'Content-Length'), code).toBe(String(Buffer.byteLength(body)));
      expect(header(headers, 'Content-Type'), code).toBe('text/plain; charset=utf-8');
      expect(body, code).toBe(`${row.says} ${row.advice}\n`);
    }
  });

  test('replies: the contract with SOCKS5 clients', () => {
    const replies = {
      forbidden: 0x02,
      'bad-request': 0x01,
      'pool-empty': 0x01,
      'target-unreachable': 0x04,
      'members-failed': 0x01,
      deadline: 0x06,
      'not-implemented': 0x07,
      internal: 0x01,
    } as const;
    for (const [code, reply] of Object.entries(replies)) {
      expect(socks5ReplyCode({ code: code as FaultCode }), code).toBe(reply);
    }
    expect(socks5ReplyCode({ code: 'target-unreachable', targetRefused: true })).toBe(0x05);
    expect(socks5ReplyCode({ code: 'members-failed', targetRefused: true })).toBe(0x01);
  });

  test('replies: a failed authentication that is found after the sub-negotiation is not allowed', () => {
    expect(FAULTS['bad-routing'].socks5).toBe('auth');
    expect(socks5ReplyCode({ code: 'bad-routing' })).toBe(0x02);
  });

  test('replies: every code has some reply that is no success', () => {
    for (const code of CODES) {
      expect(socks5ReplyCode({ code }), code).toBeGreaterThanOrEqual(0x01);
      expect(socks5ReplyCode({ code }), code).toBeLessThanOrEqual(0x08);
    }
  });
});

describe('replies: what stands beside the code', () => {
  test('replies: Retry-After is told where a time was computed, in whole seconds, rounded up, and always with an empty pool', () => {
    const after = (retryAfterMs: number) =>
      header(refusalReply({ code: 'pool-empty', retryAfterMs }).headers, 'Retry-After');
    expect([0, 1, 1_000, 1_001, 9_500].map(after)).toEqual(['1', '1', '1', '2', '10']);
    expect(header(refusalReply({ code: 'pool-empty' }).headers, 'Retry-After')).toBe('60');
    expect(header(refusalReply({ code: 'members-failed' }).headers, 'Retry-After')).toBeUndefined();
  });

  test('replies: where no waiting helps, none is advised', () => {
    const sources = [{ name: 'city', state: 'ready', reason: '', nextDrawMs: 3_000 }];
    const reason = 'no source has members there';
    const { headers, body } = refusalReply({ code: 'bad-routing', reason, retryAfterMs: 3_000, sources });
    expect(header(headers, 'Retry-After')).toBeUndefined();
    expect(body).toContain('No source has members there.');
    expect(body).not.toContain('city');
  });

  test('replies: 407 challenges with Basic in UTF-8, and nothing else does', () => {
    for (const code of CODES) {
      const { status, headers } = refusalReply({ code });
      const challenge = status === 407 ? 'Basic realm="noria", charset="UTF-8"' : undefined;
      expect(header(headers, 'Proxy-Authenticate'), code).toBe(challenge);
    }
    expect(refusalReply({ code: 'auth-required' }).status).toBe(407);
  });

  test('replies: a target that refused has its own token', () => {
    const { headers } = refusalReply({ code: 'target-unreachable', targetRefused: true, attempts: 2 });
    expect(header(headers, 'Proxy-Status')).toBe(
      'noria; error=connection_refused; details="target-unreachable"',
    );
    expect(header(headers, 'X-Noria-Attempts')).toBe('2');
  });

  test('replies: an empty pool says why, for each source, and what to do, in one paragraph', () => {
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
        'Try again after the time in Retry-After; noria status says what each source waits for.\n',
    );
  });

  test('replies: an error is told by its code and its time to wait, never by its message', () => {
    const error = new NoriaError('too-many-requests', 'client 192.0.2.1 guesses', {
      context: { retryAfterMs: 12_000, address: '192.0.2.1' },
    });
    expect(refusedBy(error)).toEqual({ code: 'too-many-requests', retryAfterMs: 12_000 });
    expect(refusedBy(new NoriaError('bad-routing', 'unknown key "x"'))).toEqual({ code: 'bad-routing' });
    const { headers, body } = refusalReply(refusedBy(error));
    expect(header(headers, 'Retry-After')).toBe('12');
    expect(body).not.toContain('192.0.2.1');
  });
});

describe('replies: what a client is told about its way', () => {
  function way(more: Partial<MemberConnection> = {}): MemberConnection {
    return {
      socket: new Socket(),
      head: Buffer.alloc(0),
      forwardMode: 'direct',
      reused: false,
      member: 'm7',
      source: 'city',
      attempts: 2,
      end: () => {},
      ...more,
    };
  }

  test('replies: member and attempts always, the rest where it is known', () => {
    expect(successHeaders(way())).toEqual([
      ['X-Noria-Member', 'm7'],
      ['X-Noria-Attempts', '2'],
    ]);
    expect(successHeaders(way({ exitIp: '203.0.113.9', remainingMs: 61_999, session: 'ann:abc' }))).toEqual([
      ['X-Noria-Member', 'm7'],
      ['X-Noria-Attempts', '2'],
      ['X-Noria-Exit', '203.0.113.9'],
      ['X-Noria-Expires-In', '61'],
      ['X-Noria-Session', 'ann:abc'],
    ]);
    expect(header(successHeaders(way({ remainingMs: -5 })), 'X-Noria-Expires-In')).toBe('0');
  });

  test('replies: a session of any user can stand in a header, and in a path as it stands there', () => {
    const session = 'mü ller%\r\n:abc';
    const told = header(successHeaders(way({ session })), 'X-Noria-Session') ?? '';
    expect(told).toBe('m%C3%BC%20ller%25%0D%0A:abc');
    expect(decodeURIComponent(told)).toBe(session);
  });
});
