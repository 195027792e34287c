import { expect, test } from 'vitest';
import { formatFrontProxy, readFrontProxy } from '../../src/core/front-proxy.ts';

const read = (text: string) => {
  const reading = readFrontProxy(text);
  if ('wrong' in reading) return reading.wrong;
  const { login, ...rest } = reading.value;
  return login === undefined ? rest : { ...rest, login: [login.username, login.password.reveal()] };
};

test.each([
  ['http://bastion:3128', { protocol: 'http', host: 'bastion', port: 3128 }],
  ['HTTP://Bastion.Example.COM/', { protocol: 'http', host: 'bastion.example.com', port: 80 }],
  ['http://10.0.0.7:80', { protocol: 'http', host: '10.0.0.7', port: 80 }],
  ['socks5://bastion', { protocol: 'socks5', host: 'bastion', port: 1080 }],
  ['socks5://bastion:80', { protocol: 'socks5', host: 'bastion', port: 80 }],
  ['socks5h://[2001:db8::7]:1081', { protocol: 'socks5', host: '2001:db8::7', port: 1081 }],
  [
    'http://user%40corp:p%3A%2F%40ss@bastion:3128',
    { protocol: 'http', host: 'bastion', port: 3128, login: ['user@corp', 'p:/@ss'] },
  ],
])('front proxy: %s is read', (text, value) => {
  expect(read(text)).toEqual(value);
});

test.each([
  ['bastion:3128', 'does not begin with http:// or socks5://'],
  ['https://bastion:3128', 'does not begin with http:// or socks5://'],
  ['socks4://bastion:1080', 'does not begin with http:// or socks5://'],
  ['http://', 'is not a URL'],
  ['http://bastion:70000', 'is not a URL'],
  ['http://bastion:0', 'has an invalid host or port'],
  ['http://bastion/path', 'has a path, a query or a fragment'],
  ['http://user@bastion', 'has a user name without a password'],
  ['http://:pass@bastion', 'has a password without a user name'],
  ['http://user:100%@bastion', 'has a % that is not part of an encoded character; write %25 for it'],
  [`http://user:${'x'.repeat(256)}@bastion`, 'has a user name or a password of more than 255 bytes'],
  ['http://a%3Ab:pass@bastion', 'has a control character, or a colon in its user name'],
])('front proxy: %s is refused', (text, wrong) => {
  expect(read(text)).toBe(wrong);
});

test('front proxy: its text masks the password', () => {
  const reading = readFrontProxy('http://user:hunter2@bastion:3128');
  if ('wrong' in reading) throw new TypeError(reading.wrong);
  expect(formatFrontProxy(reading.value)).toBe('http://user:[secret]@bastion:3128');
  expect(JSON.stringify(reading.value)).not.toContain('hunter2');
});
