/** The proxy protocols of curl, and the option with which it trusts the targets of the tests. */
import { TARGET_CERTIFICATE } from './exit-origin.ts';

export const TRUST = ['--cacert', TARGET_CERTIFICATE];

export const PROTOCOLS: Readonly<Record<string, (proxy: string) => string[]>> = {
  'an HTTP proxy': (proxy) => ['-x', `http://${proxy}`],
  'an HTTP proxy, always CONNECT': (proxy) => ['-p', '-x', `http://${proxy}`],
  'an HTTP/1.0 proxy': (proxy) => ['--proxy1.0', proxy],
  socks4a: (proxy) => ['-x', `socks4a://${proxy}`],
  socks5h: (proxy) => ['-x', `socks5h://${proxy}`],
};
