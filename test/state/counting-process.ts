/** Increments a versioned file: `node counting-process.ts FOLDER TIMES`. */
import { VersionedFile } from '../../src/state/state-files.ts';

const [folder = '', times = ''] = process.argv.slice(2);
const file = new VersionedFile(folder, 'count');
for (let done = 0; done < Number(times); done += 1) {
  await file.change((value) => ({
    newValue: (typeof value === 'number' ? value : 0) + 1,
    result: undefined,
  }));
}
