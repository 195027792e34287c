/** Decodes an answer of a link, as the client does. */
import {
  type DecodedLink,
  decodeLink,
  type LinkDecodeOptions,
} from '../../../src/service/link/decode-link.ts';
import type { LinkRules } from '../../../src/service/link/rules.ts';

/** 2026-11-22 10:00:00 in China. */
export const WALL_AT = Date.UTC(2026, 10, 22, 2, 0, 0);

export function decode(
  answer: unknown,
  rules: Partial<LinkRules> = {},
  options: Partial<LinkDecodeOptions> = {},
): DecodedLink {
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer);
  return decodeLink(Buffer.from(text), {
    host: 'share.example.com',
    secrets: [],
    answer: { format: 'auto', ...rules },
    login: 'use',
    protocol: undefined,
    refuses: () => undefined,
    wallAt: WALL_AT,
    ...options,
  });
}

/** Returns the entries, one line each: `host:port protocol life exit location user:password`. */
export function lines(decoded: DecodedLink): string[] {
  return decoded.entries.map(({ host, port, protocol, lifetimeMs, exitIp, location, login }) =>
    [
      `${host}:${port}`,
      protocol === 'http' ? undefined : protocol,
      lifetimeMs === undefined ? undefined : `${lifetimeMs}`,
      exitIp,
      location,
      login === undefined ? undefined : `${login.username}/${login.password.reveal()}`,
    ]
      .filter((part) => part !== undefined)
      .join(' '),
  );
}
