"""Model families that the package `renderers` writes and reads, as data: each is one line of the
group `houston.dialects` in pyproject.toml.

`renderer_dialect` checks the invariants of a family whenever it makes the dialect.
"""

from houston_daemon.prompts.renderer_dialect import RendererFamily

_KEEP_THINKING = {
    False: {"enable_thinking": False},
    True: {"enable_thinking": True, "clear_thinking": False},
}
_ENABLE_THINKING = {False: {"enable_thinking": False}, True: {"enable_thinking": True}}

LLAMA_3 = RendererFamily("llama-3", "llama_3:Llama3Renderer", "Llama 3.2 Instruct")
DEEPSEEK_V3 = RendererFamily("deepseek-v3", "deepseek_v3:DeepSeekV3Renderer", "DeepSeek-V3")
DEEPSEEK_R1 = RendererFamily("deepseek-r1", "deepseek_r1:DeepSeekR1Renderer", "DeepSeek-R1")
DEEPSEEK_V4 = RendererFamily(
    "deepseek-v4",
    "deepseek_v4:DeepSeekV4Renderer",
    "DeepSeek-V4-Flash",
    _ENABLE_THINKING,
    markup=("｜DSML｜",),
)
_NO_PLACE_FOR_CALLS = (
    "the model's own template says how tools, calls and results are written, and this one has a"
    " place for none of them: it takes turns of user and model only, {system}. A server of it works"
    ' with kind = "chat" and tool_calls = "text"'
)
GEMMA_2 = RendererFamily(
    "gemma-2",
    "",
    "Gemma 2",
    refused=_NO_PLACE_FOR_CALLS.format(system="and no system prompt"),
)
GEMMA_3 = RendererFamily(
    "gemma-3",
    "",
    "Gemma 3",
    refused=_NO_PLACE_FOR_CALLS.format(
        system="and puts the system prompt into the first turn of the user"
    ),
)
GEMMA_4 = RendererFamily(
    "gemma-4", "gemma4:Gemma4Renderer", "Gemma 4 E2B and E4B", _ENABLE_THINKING, markup=('<|"|>',)
)
GEMMA_4_31B = RendererFamily(
    "gemma-4-31b",
    "gemma4:Gemma4Renderer",
    "Gemma 4 26B-A4B and 31B",
    _ENABLE_THINKING,
    model="google/gemma-4-31B-it",
    markup=('<|"|>',),
)
GLM_4_5 = RendererFamily("glm-4.5", "glm45:GLM45Renderer", "GLM-4.5 Air", _ENABLE_THINKING)
GLM_5 = RendererFamily("glm-5", "glm5:GLM5Renderer", "GLM-5, GLM-4.7 Flash", _KEEP_THINKING)
GLM_5_1 = RendererFamily("glm-5.1", "glm5:GLM51Renderer", "GLM-5.1", _KEEP_THINKING)
GLM_5_3 = RendererFamily("glm-5.3", "glm5:GLM53Renderer", "GLM-5.3")
GPT_OSS = RendererFamily(
    "gpt-oss",
    "gpt_oss:GptOssRenderer",
    "gpt-oss 20b and 120b",
    refused="the ids of a prompt must be those of the model's tokenizer, and its renderer encodes "
    "with a vocabulary of its own, which it downloads",
)
HY_3 = RendererFamily(
    "hy3",
    "hy3:Hy3Renderer",
    "Hunyuan Hy3",
    {False: {"reasoning_effort": "no_think"}, True: {"reasoning_effort": "high"}},
)
INKLING = RendererFamily(
    "inkling",
    "inkling:InklingRenderer",
    "Inkling, Inkling Small",
    {False: {"reasoning_effort": 0.0}, True: {"reasoning_effort": 0.9}},
)
KIMI_K2 = RendererFamily(
    "kimi-k2",
    "kimi_k2:KimiK2Renderer",
    "Kimi K2 Instruct",
    call_id="functions.{name}:{index}",
)
KIMI_K2_5 = RendererFamily(
    "kimi-k2.5",
    "kimi_k25:KimiK25Renderer",
    "Kimi K2.5 and K2.6",
    {False: {"thinking": False}, True: {"thinking": True}},
    call_id="functions.{name}:{index}",
)
LAGUNA_XS_2 = RendererFamily(
    "laguna-xs.2", "laguna_xs2:LagunaXS2Renderer", "Laguna XS.2", _ENABLE_THINKING
)
LAGUNA_M_1 = RendererFamily(
    "laguna-m.1", "laguna_xs2:LagunaM1Renderer", "Laguna M.1", _ENABLE_THINKING
)
LAGUNA_XS_2_1 = RendererFamily(
    "laguna-xs-2.1", "laguna_xs2:LagunaXS21Renderer", "Laguna XS 2.1", _ENABLE_THINKING
)
LAGUNA_S_2_1 = RendererFamily(
    "laguna-s-2.1", "laguna_s21:LagunaS21Renderer", "Laguna S 2.1", _ENABLE_THINKING
)
MINIMAX_M2 = RendererFamily("minimax-m2", "minimax_m2:MiniMaxM2Renderer", "MiniMax M2 and M2.5")
NEMOTRON_3 = RendererFamily(
    "nemotron-3", "nemotron3:Nemotron3Renderer", "Nemotron 3 Nano and Super", _ENABLE_THINKING
)
NEMOTRON_3_ULTRA = RendererFamily(
    "nemotron-3-ultra", "nemotron3:Nemotron3UltraRenderer", "Nemotron 3 Ultra", _ENABLE_THINKING
)
NEMOTRON_3_5 = RendererFamily(
    "nemotron-3.5", "nemotron3:Nemotron35Renderer", "Nemotron 3.5", _ENABLE_THINKING
)
PRIME_QWEN3 = RendererFamily(
    "prime-qwen3", "prime_qwen3:PrimeQwen3Renderer", "PrimeIntellect's Qwen3"
)
QWEN3_VL = RendererFamily("qwen3-vl", "qwen3_vl:Qwen3VLRenderer", "Qwen3-VL, texts only")
QWEN3_5 = RendererFamily("qwen3.5", "qwen35:Qwen35Renderer", "Qwen3.5", _ENABLE_THINKING)
QWEN3_6 = RendererFamily("qwen3.6", "qwen36:Qwen36Renderer", "Qwen3.6", _ENABLE_THINKING)
QWEN3_8 = RendererFamily("qwen3.8", "qwen38:Qwen38Renderer", "Qwen3.8", _ENABLE_THINKING)

RENDERER_FAMILIES = tuple(
    family for family in list(globals().values()) if isinstance(family, RendererFamily)
)
