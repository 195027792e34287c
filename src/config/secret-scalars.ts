/** The types of scalar values that noria keeps secret. No message quotes such a value. */
import { Secret } from '../core/secret.ts';
import { maskedUrl } from '../service/link/link-url.ts';
import { isKey } from '../service/request.ts';
import { readUrl } from './network-scalars.ts';
import { type Reading, type Scalar, type ScalarType, scalar, type TextRules, text } from './scalars.ts';

const MAX_LINK_BYTES = 4096;

/** A password of 1 to 255 bytes (RFC 1929). */
export function password(): Scalar<Secret> {
  return secret({
    expected: 'a password of 1 to 255 bytes without line breaks',
    example: '${NORIA_PASSWORD}',
  });
}

/** A token that fits into an HTTP header. */
export function token(): Scalar<Secret> {
  return secret({
    expected: 'a token of printable ASCII characters without spaces',
    example: '${NORIA_ADMIN_TOKEN}',
    pattern: /^[\x21-\x7e]+$/,
  });
}

/** A text that may contain secrets. noria replaces `{count}` in it with the number of proxies that a call asks for. */
export function secretText(example: string): Scalar<Secret> {
  return secret({ expected: 'a text without line breaks', example, maxBytes: MAX_LINK_BYTES });
}

/** The URL of an extraction link, which contains keys. noria prints it with masked secrets. */
export function linkUrl(): Scalar<Secret> {
  const rules = {
    expected: 'an http:// or https:// URL without user name, password and fragment',
    example: '"https://share.example.com/get?key=${OTHER_KEY}&num={count}"',
    maxBytes: MAX_LINK_BYTES,
  };
  const { scalarType } = secret(rules, (given) => {
    if (Buffer.byteLength(given) > MAX_LINK_BYTES) return { wrong: `is longer than ${MAX_LINK_BYTES} bytes` };
    if (/\s|\p{Cc}/u.test(given)) return { wrong: 'contains white space' };
    const url = readUrl(given);
    if ('wrong' in url) return url;
    return url.value.hash === '' ? { value: new Secret(given) } : { wrong: 'has a fragment' };
  });
  return scalar({ ...scalarType, write: maskedUrl });
}

/** The 16-character key of an instance or an account. In the Config, it is in lower case. */
export function key(): Scalar<Secret> {
  const rules = {
    expected: 'a key of 16 hexadecimal digits',
    example: '0123456789abcdef',
    pattern: /^[0-9a-fA-F]{16}$/,
  };
  return secret(rules, (given) => {
    if (isKey(given)) return { value: new Secret(given.toLowerCase()) };
    if (/^[0-9a-f]{32}$/i.test(given))
      return { wrong: 'is a full MD5 hash; the key is its characters 9 to 24' };
    const others = /[^0-9a-f]/i.test(given) ? ', some of which are not hexadecimal digits' : '';
    return { wrong: `has ${given.length} characters${others}` };
  });
}

function secret(rules: TextRules, read?: ScalarType<Secret>['read']): Scalar<Secret> {
  const plain = text(rules).scalarType;
  const readPlain = (given: string): Reading<Secret> => {
    const reading = plain.read(given);
    return 'value' in reading ? { value: new Secret(reading.value) } : reading;
  };
  return scalar({ ...plain, quoted: 'never', read: read ?? readPlain, write: String });
}
