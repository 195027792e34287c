/** Limits and value types that several sections of the schema share. */
import { text } from './scalars.ts';

export const MAX = {
  members: 100_000,
  sessions: 100_000,
  tunnels: 1_000_000,
  attempts: 10,
  warm: 10_000,
  processes: 256,
  priority: 1000,
};
const MAX_PATH_BYTES = 4096;

export const filePath = (example: string, expected = 'the path of a file') =>
  text({ expected, example, maxBytes: MAX_PATH_BYTES });
export const secretFile = (example: string) =>
  filePath(example, 'the path of a file that contains only the secret');
export const username = () =>
  text({
    expected: 'a user name of 1 to 255 bytes without a colon',
    example: 'alice',
    pattern: /^[^:]*$/,
    wrong: 'contains a colon, which ends a user name in HTTP',
    private: true,
  });
