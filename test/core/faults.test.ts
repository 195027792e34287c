import { expect, test } from 'vitest';
import type { Fault } from '../../src/core/faults.ts';
import { describeError, FAULTS, type FaultCode, hasCode, NoriaError } from '../../src/core/faults.ts';

/** The registered error tokens of Proxy-Status (RFC 9209 §2.3). */
const PROXY_STATUS_TOKENS = new Set(
  `dns_timeout dns_error destination_not_found destination_unavailable destination_ip_prohibited
  destination_ip_unroutable connection_refused connection_terminated connection_timeout connection_read_timeout
  connection_write_timeout connection_limit_reached tls_protocol_error tls_certificate_error tls_alert_received
  http_request_error http_request_denied http_response_incomplete http_response_header_section_size
  http_response_header_size http_response_body_size http_response_trailer_section_size http_response_trailer_size
  http_response_transfer_coding http_response_content_coding http_response_timeout http_upgrade_failed
  http_protocol_error proxy_internal_response proxy_internal_error proxy_configuration_error proxy_loop_detected`.split(
    /\s+/,
  ),
);

const faults: readonly [FaultCode, Fault][] = Object.entries(FAULTS) as [FaultCode, Fault][];

test('faults: status and SOCKS5 reply are those of the contract', () => {
  const contract: Partial<Record<FaultCode, readonly [http: number, socks5: number | 'auth']>> = {
    'auth-required': [407, 'auth'],
    'bad-routing': [400, 'auth'],
    forbidden: [403, 0x02],
    'bad-request': [400, 0x01],
    'pool-empty': [503, 0x01],
    'target-unreachable': [502, 0x04],
    'members-failed': [502, 0x01],
    deadline: [504, 0x06],
  };
  for (const [code, fault] of faults) {
    const promised = contract[code];
    if (promised !== undefined) expect([fault.http, fault.socks5], code).toEqual(promised);
  }
});

test('faults: every fault that clients get has a registered Proxy-Status token', () => {
  const forClients = faults.filter(([, fault]) => fault.proxyStatus !== undefined);
  expect(forClients.length).toBeGreaterThan(10);
  for (const [code, fault] of forClients) {
    expect(PROXY_STATUS_TOKENS, code).toContain(fault.proxyStatus);
    expect(fault.http, code).toBeGreaterThanOrEqual(400);
  }
  for (const [code, fault] of faults) {
    if (fault.socks5 !== undefined) expect(fault.proxyStatus, `${code} is sent to clients`).toBeDefined();
  }
});

test('faults: SOCKS5 replies are those of RFC 1928', () => {
  const replies = faults.flatMap(([, fault]) => (typeof fault.socks5 === 'number' ? [fault.socks5] : []));
  expect(replies.length).toBeGreaterThan(5);
  for (const reply of replies) {
    expect(reply).toBeGreaterThanOrEqual(0x01);
    expect(reply).toBeLessThanOrEqual(0x08);
  }
});

test('faults: summary and advice are sentences', () => {
  for (const [code, fault] of faults) {
    expect(fault.summary, code).toMatch(/^(?:[A-Z]|noria).{8,}\.$/);
    expect(fault.advice, code).toMatch(/^(?:[A-Z]|noria).{8,}\.$/);
    expect(code).toMatch(/^[a-z]+(?:-[a-z]+)*$/);
  }
});

test('faults: an error has a code, a cause and a context', () => {
  const cause = new Error('below');
  const error = new NoriaError('deadline', 'too late', { cause, context: { ms: 3 } });
  expect(error.code).toBe('deadline');
  expect(error.cause).toBe(cause);
  expect(error.context).toEqual({ ms: 3 });
  expect(new NoriaError('deadline', 'too late')).not.toHaveProperty('cause');
  expect(hasCode(error, 'deadline')).toBe(true);
  expect(hasCode(error, 'internal')).toBe(false);
  expect(hasCode(Object.assign(new Error('x'), { code: 'deadline' }), 'deadline')).toBe(false);
});

test('faults: describes any thrown value in one line', () => {
  expect(describeError(new Error('broken'))).toBe('broken');
  expect(describeError(new TypeError(''))).toBe('TypeError');
  expect(describeError(new AggregateError([new Error('a'), new Error('b')], 'both'))).toBe('a; b');
  expect(describeError(new AggregateError([], 'none'))).toBe('none');
  expect(describeError('text')).toBe('text');
  expect(describeError(undefined)).toBe('undefined');
});
