import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { maskSecrets, Secret } from '../../../src/core/secret.ts';
import {
  linkIdentity,
  linkSecrets,
  maskedUrl,
  urlWithVariables,
  withCount,
} from '../../../src/service/link/link-url.ts';

const NO_EXTRAS = { headers: {}, body: undefined };
const URL_TEXT =
  'https://share.example.com/v1/a1b2c3d4e5f6a7b8c9/get?key=s3cr%2Fkey%3D&trade_no=1234567890&num={count}&type=json&city=%E5%B9%BF%E4%B8%9C&flag';

test('link url: every value of the query, and a key in the path, is a secret in each of its forms', () => {
  const secrets = linkSecrets(new Secret(URL_TEXT), NO_EXTRAS);
  const echo = 'a1b2c3d4e5f6a7b8c9 s3cr%2Fkey%3D s3cr/key= "s3cr\\/key=" 1234567890 {count} json';
  expect(maskSecrets(echo, secrets)).toBe('[secret] [secret] [secret] "[secret]" [secret] {count} json');
  expect(inspect(secrets)).not.toContain('s3cr');
});

test('link url: a short value is secret if its parameter is', () => {
  const url = new Secret('https://a.example/?pack=1234&pwd=1234&token=text&uid=49226&n={count}');
  expect(maskedUrl(url)).toBe('https://a.example/?pack=1234&pwd=[secret]&token=[secret]&uid=49226&n={count}');
  expect(linkSecrets(url, NO_EXTRAS).map((secret) => secret.reveal())).toEqual(['1234', 'text']);
});

test('link url: headers and bodies are secret, too', () => {
  const headers = { authorization: new Secret('Bearer t0ken-1') };
  const body = new Secret('{"apiKey":"k3y-in-json","num":"{count}"}');
  const secrets = linkSecrets(new Secret('https://a.example/'), { headers, body });
  expect(maskSecrets('t0ken-1 k3y-in-json', secrets)).toBe('[secret] [secret]');
});

test('link url: people see where the secrets are', () => {
  expect(maskedUrl(new Secret(URL_TEXT))).toBe(
    'https://share.example.com/v1/[secret]/get?key=[secret]&trade_no=[secret]&num={count}&type=json&city=[secret]&[secret]',
  );
});

test('link url: variables take the place of the secrets', () => {
  const url = urlWithVariables(new Secret(URL_TEXT), (name) => `V_${name.toUpperCase()}`);
  expect(url).toBe(
    'https://share.example.com/v1/${V_PATH}/get?key=${V_KEY}&trade_no=${V_TRADE_NO}&num={count}&type=json&city=${V_CITY}&${V_}',
  );
});

test('link url: the identity is the same for every count, and does not contain the URL', () => {
  const at = (text: string) => linkIdentity(new Secret(text), undefined);
  expect(at(URL_TEXT)).toMatch(/^link-[0-9a-f]{16}$/);
  expect(at('https://a.example/?n={count}')).toBe(at('https://a.example/?n=%7Bcount%7D'));
  expect(at('https://a.example/?k=1')).not.toBe(at('https://a.example/?k=2'));
});

test('link url: the count replaces every placeholder', () => {
  expect(withCount('a={count}&b=%7Bcount%7D&c=%7bCOUNT%7d', 7)).toBe('a=7&b=7&c=7');
});
