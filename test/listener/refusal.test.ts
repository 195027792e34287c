import { expect, test } from 'vitest';
import { FAULTS, type FaultCode, NoriaError } from '../../src/core/faults.ts';
import { refusalReply } from '../../src/listener/http/replies.ts';
import { refusalOf, socks5ReplyCode } from '../../src/listener/refusal.ts';

const CODES = Object.keys(FAULTS) as FaultCode[];

test('refusal: the SOCKS5 reply codes are those of the contract', () => {
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

test('refusal: an authentication fault after the authentication step is `not allowed`', () => {
  expect(FAULTS['bad-routing'].socks5).toBe('auth');
  expect(socks5ReplyCode({ code: 'bad-routing' })).toBe(0x02);
});

test('refusal: every fault has a SOCKS5 reply code other than success', () => {
  for (const code of CODES) {
    expect(socks5ReplyCode({ code }), code).toBeGreaterThanOrEqual(0x01);
    expect(socks5ReplyCode({ code }), code).toBeLessThanOrEqual(0x08);
  }
});

test('refusal: contains code, reason and retry time of an error, but never its message', () => {
  const error = new NoriaError('too-many-requests', 'client 192.0.2.1 guesses', {
    context: { retryAfterMs: 12_000, reason: 'wait', address: '192.0.2.1' },
  });
  expect(refusalOf(error)).toEqual({ code: 'too-many-requests', reason: 'wait', retryAfterMs: 12_000 });
  expect(refusalOf(new NoriaError('bad-routing', 'unknown key "x"'))).toEqual({ code: 'bad-routing' });
  const { headers, body } = refusalReply(refusalOf(error));
  expect(headers).toContainEqual(['Retry-After', '12']);
  expect(body).not.toContain('192.0.2.1');
});

test('refusal: has a reason and a time only if the error has them', () => {
  expect(refusalOf(new NoriaError('forbidden', 'for the log'))).toStrictEqual({ code: 'forbidden' });
  const context = { reason: 'for the client', retryAfterMs: 1_000 };
  expect(refusalOf(new NoriaError('limit', 'for the log', { context }))).toStrictEqual({
    code: 'limit',
    ...context,
  });
});
