/** Checks the `params` of a source against the table of its operation. */
import { nearest } from '../core/words.ts';
import { type DrawRow, OPERATIONS, type OperationParam, type SourceProduct } from './operations.ts';

interface ParamProblem {
  readonly key: string;
  readonly message: string;
  readonly suggestion?: string;
}

/** Parameters that noria derives from other keys of a source. `params` cannot set them. */
const SET_ELSEWHERE: Readonly<Record<string, string>> = {
  api: 'comes from instance',
  inst_id: 'comes from instance',
  app_id: 'comes from instance',
  akey: 'comes from password or akey of the source',
  type: 'comes from format',
  return_type: 'comes from format',
};

const MAX_LENGTH = 500;
/** The greatest allowed `count` if the product sets no maximum: noria keeps only this many entries of an answer. */
const MAX_COUNT = 1_000;

/** @returns the parameters as the service expects them, where `count` is the maximum per call. */
export function checkParams(
  product: SourceProduct,
  params: Readonly<Record<string, unknown>>,
): {
  readonly params: Readonly<Record<string, string | number>>;
  readonly problems: readonly ParamProblem[];
} {
  const operation: DrawRow = OPERATIONS[product];
  const checked: Record<string, string | number> = {};
  const problems: ParamProblem[] = [];
  const take = (key: string, read: Read) => {
    if ('value' in read) checked[key] = read.value;
    else problems.push({ key, message: read.wrong });
  };

  for (const key of Object.keys(params)) {
    if (Object.hasOwn(operation.params, key) || key === 'count') continue;
    problems.push(unknownParam(key, product));
  }
  const count = params['count'];
  if (count !== undefined && count !== null)
    take('count', readWhole(count, 1, operation.count.max ?? MAX_COUNT));
  for (const [key, param] of Object.entries(operation.params)) {
    const raw = params[key];
    if (raw !== undefined && raw !== null) take(key, readParam(param, raw));
    else if (param.default !== undefined) checked[key] = param.default;
  }
  problems.push(...contradictions(checked));
  return { params: checked, problems };
}

type Read = { readonly value: string | number } | { readonly wrong: string };

function unknownParam(key: string, product: SourceProduct): ParamProblem {
  if (OPERATIONS[product].number === 'link')
    return {
      key,
      message:
        product === 'link'
          ? `is not a parameter of a link, whose only parameter is count; add ${key} to url`
          : `does not work with product: ${product}, which has no parameters; remove it`,
    };
  const operation = OPERATIONS[product];
  const elsewhere = Object.hasOwn(SET_ELSEWHERE, key) ? SET_ELSEWHERE[key] : undefined;
  if (elsewhere !== undefined) return { key, message: `cannot be set here: it ${elsewhere}` };
  const known = [...Object.keys(operation.params), 'count'];
  const suggestion = nearest(key, known);
  const message = `is not a parameter of ${operation.path}; its parameters are ${known.join(', ')}`;
  return suggestion === undefined ? { key, message } : { key, message, suggestion };
}

function readParam(param: OperationParam, raw: unknown): Read {
  switch (param.kind) {
    case 'whole':
      return readWhole(raw, param.from, param.to);
    case 'choice':
      return readChoice(raw, param.values);
    case 'keywords':
      return readKeywords(raw);
    case 'label':
      return readLabel(raw);
  }
}

function readWhole(raw: unknown, from: number, to: number): Read {
  const value = wholeNumber(raw);
  if (value !== undefined && value >= from && value <= to) return { value };
  return { wrong: `is not a whole number from ${from} to ${to}` };
}

function readChoice(raw: unknown, values: Readonly<Record<number, string>>): Read {
  const value = wholeNumber(raw);
  if (value !== undefined && Object.hasOwn(values, value)) return { value };
  const list = Object.entries(values).map(([number, meaning]) => `${number} (${meaning})`);
  return { wrong: `is not one of ${list.join(', ')}` };
}

function readKeywords(raw: unknown): Read {
  const list = Array.isArray(raw) ? raw : typeof raw === 'string' ? raw.split(',') : [];
  const keywords = list.map((item) => (typeof item === 'string' ? item.trim() : ''));
  if (keywords.length === 0 || keywords.includes(''))
    return { wrong: 'is neither a list of keywords nor keywords separated by commas' };
  if (keywords.some((keyword) => /[，、,;；]/.test(keyword)))
    return { wrong: 'must separate its keywords with ASCII commas: write a,b and not a，b' };
  return readText(keywords.join(','));
}

function readLabel(raw: unknown): Read {
  const label = typeof raw === 'string' ? raw.trim() : '';
  return label === '' ? { wrong: 'is empty or not text' } : readText(label);
}

function readText(text: string): Read {
  if (!text.isWellFormed() || /\p{Cc}/u.test(text)) return { wrong: 'is not printable text' };
  if (text.length > MAX_LENGTH) return { wrong: `is longer than ${MAX_LENGTH} characters` };
  return { value: text };
}

function contradictions(params: Readonly<Record<string, string | number>>): ParamProblem[] {
  const requested = String(params['adr'] ?? '').split(',');
  const both = String(params['nadr'] ?? '')
    .split(',')
    .filter((keyword) => keyword !== '' && requested.includes(keyword));
  if (both.length === 0) return [];
  return [{ key: 'nadr', message: `excludes what adr requests: ${both.join(', ')}` }];
}

function wholeNumber(raw: unknown): number | undefined {
  const value = typeof raw === 'string' && /^\d{1,9}$/.test(raw.trim()) ? Number(raw) : raw;
  return typeof value === 'number' && Number.isInteger(value) ? value : undefined;
}
