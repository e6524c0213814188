"""Encoding: content cannot speak as markup, cutting keeps both ends, decoding is the inverse."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from houston_daemon.prompts.dialect_protocol import PromptPiece, PromptToolResult
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import (
    PromptTokenizer,
    TokenEstimator,
    load_prompt_tokenizer,
)
from houston_shared.errors import ConfigurationError
from tests.support.family_tokenizers import family_tokenizer
from tests.support.small_tokenizer import DIALECT_NAMES, PLAIN, SPECIAL, small_tokenizer


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    return PromptTokenizer(small_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> tuple[PromptTokenizer, Tokenizer]:
    """Mistral v3's way: SentencePiece with a space before a text that begins a prompt."""
    file = family_tokenizer("mistral-v3", tmp_path_factory.mktemp("spaced"))
    return PromptTokenizer(file), Tokenizer.from_file(file)


content = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="[]<▁"), max_size=12
)


def markup(tokens: PromptTokenizer) -> set[int]:
    return {number for text in (*SPECIAL, *PLAIN) if (number := tokens.id_of(text)) is not None}


@pytest.mark.parametrize("text", [*SPECIAL, *PLAIN])
def test_a_token_is_markup_in_the_template_and_letters_in_content(
    tokens: PromptTokenizer, text: str
) -> None:
    meant = tokens.encode([PromptPiece(text, True)])
    typed = tokens.encode([PromptPiece(text, False)])
    assert meant == [tokens.id_of(text)]
    assert not markup(tokens) & set(typed)
    assert tokens.decode(typed) == text


@pytest.mark.parametrize("text", ["東京" * 500, "🜁" * 300, "word " * 300])
def test_what_is_cut_has_no_more_than_its_tokens(tokens: PromptTokenizer, text: str) -> None:
    note = 80  # this tokenizer spells the note between both ends by letters
    for limit in (100, len(text)):
        assert tokens.count(tokens.cut(text, limit)) <= limit + note


def test_how_somebodys_training_cut_and_padded_is_not_taken_over(tmp_path: Path) -> None:
    file = Path(small_tokenizer(tmp_path))
    plain = PromptTokenizer(str(file)).encode([PromptPiece("a b " * 100, False)])
    made = json.loads(file.read_text())
    made["truncation"] = {
        "direction": "Right",
        "max_length": 8,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    made["padding"] = {
        "strategy": {"Fixed": 500},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "a",
    }
    file.write_text(json.dumps(made))
    tokens = PromptTokenizer(str(file))
    assert tokens.encode([PromptPiece("a b " * 100, False)]) == plain
    assert tokens.count("a b " * 100) == len(plain)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*SPECIAL, *PLAIN, "<", "|", "im", "a ", "\n", "é"]), max_size=12))
def test_no_content_encodes_to_markup(tokens: PromptTokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    typed = tokens.encode([PromptPiece(text, False)])
    assert not markup(tokens) & set(typed)
    assert tokens.decode(typed) == text


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_file_cannot_end_a_turn(tokens: PromptTokenizer, name: str) -> None:
    dialect = choose_dialect(name)
    hostile = "".join(SPECIAL) + "".join(PLAIN)
    honest = dialect.observation([PromptToolResult("1.0", "open_file", "text")], "[tail]", "")
    forged = dialect.observation([PromptToolResult("1.0", "open_file", hostile)], hostile, "")
    known = markup(tokens)
    assert [i for i in tokens.encode(forged) if i in known] == [
        i for i in tokens.encode(honest) if i in known
    ]


@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["[INST]", "[/INST] ", "</s>", "[TOOL_CALLS] "]), content),
        min_size=1,
        max_size=4,
    )
)
def test_a_tokenizer_that_begins_with_a_space_encodes_as_the_whole_prompt(
    spaced: tuple[PromptTokenizer, Tokenizer], parts: list[tuple[str, str]]
) -> None:
    ours, theirs = spaced
    pieces = [PromptPiece("<s>", True)]
    for markup, text in parts:
        pieces += [PromptPiece(markup, True), PromptPiece(text, False)]
    ids = ours.encode(pieces)
    whole = "".join(piece.text for piece in pieces)
    assert ids == theirs.encode(whole, add_special_tokens=False).ids
    assert ours.decode(ids) == whole
    later = ours.encode(pieces[:1]) + ours.encode(pieces[1:])
    assert later == ids, "what comes later begins no prompt"


@pytest.mark.parametrize("text", ["</s>", "a [INST] b", "\ufdd2", " two  spaces ", "é 日本 🛰"])
def test_its_content_is_letters_and_comes_back_as_it_was(
    spaced: tuple[PromptTokenizer, Tokenizer], text: str
) -> None:
    ours, _ = spaced
    ids = ours.encode([PromptPiece(text, False)])
    assert ours.decode(ids) == text
    assert ours.count(text) == len(ids)
    assert not set(ours.special) & set(ids)


@pytest.mark.parametrize("measure", ["tokens", "characters"])
def test_a_long_text_is_cut_in_its_middle_and_says_so(
    tokens: PromptTokenizer, measure: str
) -> None:
    counter = tokens if measure == "tokens" else TokenEstimator()
    text = "first line\n" + "file of words " * 2000 + "\nlast line"
    short = counter.cut(text, 200)
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "characters cut" in short
    assert counter.count(short) <= 240
    assert counter.cut("short", 200) == "short"


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no tokenizer file"):
        PromptTokenizer(str(tmp_path / "tokenizer.json"))


def test_a_tokenizer_is_read_once_and_again_when_its_file_is_another(tmp_path: Path) -> None:
    path = small_tokenizer(tmp_path)
    first = load_prompt_tokenizer(path)
    assert load_prompt_tokenizer(path) is first
    Path(path).unlink()
    with pytest.raises(ConfigurationError, match="no tokenizer file"):
        load_prompt_tokenizer(path)
    small_tokenizer(tmp_path, size=300)
    assert load_prompt_tokenizer(path) is not first
