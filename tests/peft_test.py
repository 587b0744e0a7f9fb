"""LoRA adapters between PEFT and Braid, in both directions.

usage: peft_test.py BRAID
tools/oracle/peft_adapter.py compares logits; it needs the Python packages that it names, in the Python of
BRAID_PEFT_PYTHON or else in the one that runs this. Without them those tests are skipped with what is missing, and the
files that Braid writes are still compared with those that PEFT wrote (tests/data/adapter).
"""
import json
import os
import subprocess
import sys

from support.program import BRAID, DATA, ENVIRONMENT, main
from support.tensors import tensors
from support.training import HYBRID, TrainCase

PYTHON = os.environ.get("BRAID_PEFT_PYTHON", sys.executable)
ORACLE = DATA.parent.parent / "tools" / "oracle" / "peft_adapter.py"
STORED = DATA / "adapter"
MISSING = 77


class Peft(TrainCase):
    def adapter(self):
        """Trained by Braid, on the modules and with the rank of the stored one."""
        config = json.loads((STORED / "adapter_config.json").read_text())
        self.trained("steps=30", "optimizer.lr=2e-2", f"lora.rank={config['r']}", f"lora.alpha={config['lora_alpha']}",
                     f"lora.targets={json.dumps(config['target_modules'])}",
                     f"lora.target_parameters={json.dumps(config['target_parameters'])}")
        return self.out

    def oracle(self, *words):
        done = subprocess.run([PYTHON, ORACLE, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if done.returncode == MISSING:
            self.skipTest(f"{PYTHON} lacks packages: {done.stdout.strip()}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_an_adapter_of_braid_has_the_files_of_peft(self):
        ours = self.adapter()
        ours_of, stored_of = (tensors(folder / "adapter_model.safetensors") for folder in (ours, STORED))
        self.assertEqual({name: t.shape for name, t in ours_of.items()}, {name: t.shape for name, t in stored_of.items()})
        got, want = (json.loads((folder / "adapter_config.json").read_text()) for folder in (ours, STORED))
        for key in ("peft_type", "task_type", "r", "lora_alpha"):
            self.assertEqual(got[key], want[key], key)
        for key in ("bias", "use_rslora", "use_dora"):  # PEFT's default if the file does not say
            self.assertEqual(got.get(key, want[key]), want[key], key)
        for key in ("target_modules", "target_parameters"):
            self.assertEqual(set(got[key]), set(want[key]), key)

    def test_an_adapter_of_braid_read_by_peft(self):
        self.oracle("check", HYBRID, self.adapter(), "--braid", BRAID)

    def test_an_adapter_of_peft_read_by_braid(self):
        self.oracle("make", HYBRID, self.root / "made", "--targets", "q_proj,o_proj,in_proj,fc1_latent_proj",
                    "--parameters", "experts.up_proj,experts.down_proj")
        self.oracle("check", HYBRID, self.root / "made", "--braid", BRAID)


if __name__ == "__main__":
    main()
