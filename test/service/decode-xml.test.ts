import { expect, test } from 'vitest';
import { readXml } from '../../src/service/decode-xml.ts';
import { decoded, reading } from './reading.ts';

const TWO = [
  { host: '192.0.2.1', port: 8000, location: '上海市 电信', lifetimeMs: 213_000 },
  { host: '192.0.2.2', port: 8001 },
];

// The specification shows no layout, so these are the layouts in which XML libraries print such a value.
test.each([
  [
    'a list element around entries',
    `<root><code>10001</code><msg>ok</msg><data><count>2</count><proxy_list>
      <proxy><ip>192.0.2.1</ip><port>8000</port><adr>上海市 电信</adr><timeout>213</timeout></proxy>
      <proxy><ip>192.0.2.2</ip><port>8001</port></proxy></proxy_list></data></root>`,
  ],
  [
    'the list element repeated for each entry',
    `<xml><code>10001</code><data><proxy_list><ip>192.0.2.1</ip><port>8000</port><adr>上海市 电信</adr><timeout>213</timeout></proxy_list>
      <proxy_list><ip>192.0.2.2</ip><port>8001</port></proxy_list></data></xml>`,
  ],
  [
    'attributes',
    `<answer code="10001" msg="ok"><proxy ip="192.0.2.1" port="8000" adr="上海市 电信" timeout="213"/><proxy ip='192.0.2.2' port='8001'></proxy></answer>`,
  ],
  [
    'attributes and elements mixed',
    `<answer><code>10001</code><proxy ip="192.0.2.1"><port>8000</port><adr>上海市 电信</adr><timeout>213</timeout></proxy><proxy port="8001"><ip>192.0.2.2</ip></proxy></answer>`,
  ],
  [
    'entries side by side in one element',
    `<root><code>10001</code><list><ip>192.0.2.1</ip><port>8000</port><adr>上海市 电信</adr><timeout>213</timeout><ip>192.0.2.2</ip><port>8001</port></list></root>`,
  ],
  [
    'entries side by side, next to the code',
    `<root><code>10001</code><msg>ok</msg><ip>192.0.2.1</ip><port>8000</port><adr>上海市 电信</adr><timeout>213</timeout><ip>192.0.2.2</ip><port>8001</port></root>`,
  ],
  [
    'names with capitals and namespaces',
    `<s:Answer xmlns:s="urn:x" xmlns:i="urn:y"><s:Code>10001</s:Code><s:Data><s:Entry i:kind="p"><s:Ip>192.0.2.1</s:Ip><s:Port>8000</s:Port><s:Adr>上海市 电信</s:Adr><s:Timeout>213</s:Timeout></s:Entry><s:Entry><s:Ip>192.0.2.2</s:Ip><s:Port>8001</s:Port></s:Entry></s:Data></s:Answer>`,
  ],
  [
    'CDATA, comments, references, a declaration and processing instructions',
    `<?xml version="1.0" encoding="utf-8"?><?sheet x?><!-- a --><root><code><![CDATA[10001]]></code><p><!-- b --><ip>192.0.2.1</ip><port>8000</port><adr>&#19978;&#x6d77;市 <![CDATA[电信]]></adr><timeout> 213 </timeout></p><p><ip><![CDATA[192.0.2.2]]></ip><port>8001</port></p></root>`,
  ],
])('xml: %s', (_, body) => {
  expect(decoded(body, { format: 'xml' })).toEqual(
    expect.objectContaining({ code: '10001', entries: TWO, dropped: {} }),
  );
});

test('xml: an entry without its port or its address is dropped and counted', () => {
  const body =
    '<r><code>10001</code><p><ip>192.0.2.1</ip></p><p><port>80</port></p><p><ip>192.0.2.2</ip><port>80</port></p></r>';
  expect(decoded(body, { format: 'xml' })).toMatchObject({
    entries: [{ host: '192.0.2.2', port: 80 }],
    dropped: { port: 1, address: 1 },
  });
});

test('xml: a success may have no entries', () => {
  for (const data of ['', '<data/>', '<data></data>', '<data><count>0</count><proxy_list/></data>']) {
    const body = `<r><code>10001</code><msg/>${data}</r>`;
    expect(decoded(body, { format: 'xml' })).toEqual(
      expect.objectContaining({ code: '10001', entries: [], dropped: {} }),
    );
  }
});

test('xml: an error is read by its code, even next to an address', () => {
  const body =
    '<r><code>12012</code><msg>a &lt;b&gt; &amp;amp; &nope; &#9999999;</msg><ip>198.51.100.1</ip></r>';
  expect(decoded(body, { format: 'xml' })).toEqual(
    expect.objectContaining({
      code: '12012',
      message: 'a <b> &amp; &nope; &#9999999;',
      entries: [],
      dropped: {},
    }),
  );
});

test('xml: an address without a port next to the code of a success is not an entry', () => {
  const body = '<r><code>10001</code><ip>198.51.100.1</ip><p><ip>192.0.2.1</ip><port>80</port></p></r>';
  expect(decoded(body, { format: 'xml' })).toEqual(
    expect.objectContaining({
      entries: [{ host: '192.0.2.1', port: 80 }],
      dropped: {},
    }),
  );
});

test('xml: the first of several codes and counters outside the entries is used', () => {
  const body =
    '<r><code>10001</code><today_count>1</today_count><data><code>12001</code><today_count>2</today_count></data></r>';
  expect(decoded(body, { format: 'xml' })).toMatchObject({ code: '10001', quota: { today: 1 } });
});

test('xml: counters are read at any place', () => {
  const body =
    '<r surplus_count="9"><code>10001</code><data><update_count>2</update_count><more><today_count>4</today_count></more></data></r>';
  expect(decoded(body, { format: 'xml' }).quota).toEqual({ remaining: 9, added: 2, today: 4 });
});

test.each([
  ['is truncated', '<r><code>10001</code><p><ip>192.0.2.1</ip>'],
  ['closes an element that is not open', '<r><code>10001</code></s>'],
  ['has no code', '<r><p><ip>192.0.2.1</ip><port>80</port></p></r>'],
  ['has two roots', '<r><code>10001</code></r><r/>'],
  ['has a document type', '<!DOCTYPE r><r><code>10001</code></r>'],
  ['defines entities', '<!DOCTYPE r [<!ENTITY a "10001">]><r><code>&a;</code></r>'],
  ['repeats an attribute', '<r code="10001" code="12001"/>'],
  ['has text outside its root', '<r><code>10001</code></r>x'],
  ['is not XML', 'code 10001'],
])('xml: a document that %s is not understood', (_, body) => {
  expect(readXml(body, reading())).toBeUndefined();
});

test('xml: an element with the name of an inherited property is an element as any other', () => {
  const body =
    '<r><code>10001</code><__proto__><ip>192.0.2.1</ip><port>80</port></__proto__><constructor>x</constructor></r>';
  expect(decoded(body, { format: 'xml' }).entries).toEqual([{ host: '192.0.2.1', port: 80 }]);
});
