import sys; sys.path.insert(0,'/work/main')
from pathlib import Path
import torch, json
from safetensors.torch import load_file
from tests.training.sft import tiny
from houston_daemon.training.sft.progress import Writer
from houston_daemon.training.sft.running import train
def test_head(tmp_path):
    base = tiny.save_model(tmp_path/'base', tie_word_embeddings=False)
    f = tiny.run_folder(tmp_path, base, tiny.rows(), steps=2, lora_targets=("lm_head","q_proj"), learning_rate=1e-2)
    assert train(f, Writer(f.path))
    w = load_file(f.output/'adapter_model.safetensors')
    for k,v in w.items():
        if 'lora_B' in k: print(k, float(v.abs().sum()))
    assert float(sum(v.abs().sum() for k,v in w.items() if 'lm_head' in k and 'lora_B' in k))>0
