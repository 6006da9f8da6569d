"""A job file with other values: every other byte of it stays."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core.job.xml_edit import CannotEdit, entries_by_key, set_values

PLAIN = b"""<?xml version="1.0"?>
<!-- ours -->
<configuration>
  <property>
    <name>tony.worker.memory</name>   <!-- since May -->
    <value> 8g </value>
    <description>it once ran out</description>
  </property>

  <property><name>tony.worker.instances</name><value>4</value></property> <!-- four -->
</configuration>
<!-- end -->
"""


def texts(data: bytes) -> Dict[str, str]:
    return {key: entry.text.strip() for key, entry in entries_by_key(data).items()}


def test_a_value_changes_and_nothing_else() -> None:
    made = set_values(PLAIN, {"tony.worker.memory": "3g"})
    assert made == PLAIN.replace(b" 8g ", b" 3g ")


def test_a_new_key_stands_last_in_the_files_style() -> None:
    made = set_values(PLAIN, {"tony.worker.vcores": "2", "tony.ps.memory": "1g"})
    new = (
        b"<!-- four -->"
        b"\n  <property><name>tony.worker.vcores</name><value>2</value></property>"
        b"\n  <property><name>tony.ps.memory</name><value>1g</value></property>\n</configuration>"
    )
    assert made == PLAIN.replace(b"<!-- four -->\n</configuration>", new)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Attributes, in the file's own form.
        (
            "<configuration><property name=\"a\" value='1'/></configuration>",
            "<configuration><property name=\"a\" value='2'/>"
            '<property name="tony.b" value="x&amp;y"/></configuration>',
        ),
        # Fields on lines of their own, Windows' line ends.
        (
            "<configuration>\r\n\t<property>\r\n\t\t<name>a</name>\r\n\t\t<value>1</value>"
            "\r\n\t</property>\r\n</configuration>\r\n",
            "<configuration>\r\n\t<property>\r\n\t\t<name>a</name>\r\n\t\t<value>2</value>"
            "\r\n\t</property>\r\n\t<property>\r\n\t\t<name>tony.b</name>"
            "\r\n\t\t<value>x&amp;y</value>\r\n\t</property>\r\n</configuration>\r\n",
        ),
        # CDATA, a comment in a value, an empty element, the value before the name.
        (
            "<configuration><property><value><![CDATA[ 1 ]]><!-- c --></value><name>a</name>"
            "</property><property><name>tony.b</name><value/></property></configuration>",
            "<configuration><property><value><![CDATA[2]]><!-- c --></value><name>a</name>"
            "</property><property><name>tony.b</name><value>x&amp;y</value></property>"
            "</configuration>",
        ),
        # Set twice: the last one counts. A commented-out one does not.
        (
            "<configuration><property><name>a</name><value>0</value></property>"
            "<property><name>a</name><value>1</value></property>"
            "<!-- <property><name>a</name><value>5</value></property> -->"
            "<property><name>tony.b</name><value>&#120;&amp;z</value></property></configuration>",
            "<configuration><property><name>a</name><value>0</value></property>"
            "<property><name>a</name><value>2</value></property>"
            "<!-- <property><name>a</name><value>5</value></property> -->"
            "<property><name>tony.b</name><value>x&amp;y</value></property></configuration>",
        ),
    ],
)
def test_it_is_written_as_the_file_is(before: str, after: str) -> None:
    assert set_values(before.encode(), {"a": "2", "tony.b": "x&y"}) == after.encode()


@pytest.mark.parametrize("text", ["<configuration/>", "<configuration ></configuration>",
                                  "<configuration>\n</configuration>\n"])  # fmt: skip
def test_a_file_without_a_key_gets_some(text: str) -> None:
    made = set_values(text.encode(), {"tony.b": "1"})
    assert texts(made) == {"tony.b": "1"}
    assert b"\n  <property>\n    <name>tony.b</name>\n    <value>1</value>\n  </property>\n" in made


def test_an_older_name_becomes_the_newer_one_whose_unit_counts() -> None:
    from tony_core.job.keys.key import Status
    from tony_core.job.keys.table import table

    key = next(key for key in table().keys if key.status is Status.RENAMED and key.unit)
    old = f"<configuration><property><name>{key.name}</name><value>5</value></property>"
    data = f"{old}</configuration>".encode()
    made = set_values(data, {key.alias: "7"})
    assert list(entries_by_key(made)) == [key.alias]
    assert made == data.replace(key.name.encode(), key.alias.encode()).replace(b">5<", b">7<")


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "iso-8859-1", "utf-8"])
def test_encodings_stay(codec: str) -> None:
    name = "utf-8" if codec == "utf-8-sig" else codec
    text = (
        f'<?xml version="1.0" encoding="{name}"?>\n<!-- für ä -->\n<configuration>'
        "<property><name>a</name><value>1</value></property></configuration>"
    )
    made = set_values(text.encode(codec), {"a": "2"})
    assert made == text.replace(">1<", ">2<").encode(codec)
    assert texts(set_values(text.encode(codec), {"a": "日"})) == {"a": "日"}


@pytest.mark.parametrize("data", [b"", b"no", b"<a/>", b"<configuration>",
                                  b"<!DOCTYPE a><configuration/>"])  # fmt: skip
def test_what_no_loader_takes_is_refused(data: bytes) -> None:
    with pytest.raises(CannotEdit, match=r"^f\.xml"):
        set_values(data, {"a": "1"}, "f.xml")


def test_a_form_that_the_cut_does_not_understand_is_refused() -> None:
    data = (
        b'<configuration><property xmlns="other"><name>a</name><value>1</value></property>'
        b"</configuration>"
    )
    with pytest.raises(CannotEdit, match="by hand"):
        set_values(data, {"a": "2"}, "f.xml")


# ------------------------------------------------------------------ any file

KEYS = ("tony.worker.memory", "tony.worker.vcores", "tony.ps.memory", "a.b", "tony.task.x")
VALUES = st.text("ab1g<&>\"'é]\n ", min_size=1, max_size=8).map(str.strip).filter(bool)
BLANKS = st.sampled_from(["", " ", "\n", "\r\n\t", "\n    ", "<!-- <property> -->", "<?p a?>"])


class Slot(NamedTuple):
    """A property of a file in three parts, with its value in the middle."""

    before: str
    written: str
    after: str
    key: str
    value: str
    form: str


def shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def in_attribute(text: str) -> str:
    escaped = escape(text).replace('"', "&quot;").replace("'", "&apos;")
    return escaped.replace("\n", "&#10;").replace("\t", "&#9;")


WRITE: Dict[str, Callable[[str], str]] = {
    "text": escape,
    "numbers": lambda text: "".join(f"&#{ord(mark)};" for mark in text),
    "cdata": str,
    "attribute": in_attribute,
}


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    key, value = draw(st.sampled_from(KEYS)), draw(VALUES)
    form = draw(st.sampled_from(["text", "text", "numbers", "attribute", "cdata"]))
    if form == "cdata" and "]]>" in value:
        form = "text"  # it would end the section
    written = WRITE[form](value)
    lead = draw(BLANKS)
    if form == "attribute":
        mark = draw(st.sampled_from("'\""))
        return Slot(
            f"{lead}<property name='{key}' value={mark}", written, f"{mark} />", key, value, form
        )
    name = f"{draw(BLANKS)}<name>{draw(BLANKS)}{key}</name >{draw(BLANKS)}"
    if draw(st.booleans()):
        name += "<description>a &lt;value&gt; of old</description>"
    head_tag, end_tag = f"<value>{draw(BLANKS)}", f"{draw(BLANKS)}</value\n>"
    if form == "cdata":
        head_tag, end_tag = f"{head_tag}<![CDATA[", f"]]>{end_tag}"
    before, after = (f"{name}{head_tag}", end_tag)
    if draw(st.booleans()):
        before, after = head_tag, f"{end_tag}{name}"
    before, after = f"{lead}<property>{before}", f"{after}{draw(BLANKS)}</property>"
    if not draw(st.integers(0, 5)):
        before, after = f"<configuration>{before}", f"{after}</configuration>"
    return Slot(before, written, after, key, value, form)


@st.composite
def files(draw: st.DrawFn) -> Tuple[str, List[Slot], str]:
    head = draw(st.sampled_from(["", '<?xml version="1.0"?>\n', "<!-- a -->"]))
    tail = f"{draw(BLANKS)}</configuration>{draw(BLANKS)}"
    return f"{head}<configuration>", draw(st.lists(slots(), max_size=6)), tail


@given(files(), st.dictionaries(st.sampled_from([*KEYS, "tony.new.memory"]), VALUES, max_size=4))
def test_exactly_the_changed_keys_differ_and_no_other_byte(
    file: Tuple[str, List[Slot], str], values: Dict[str, str]
) -> None:
    head, own, tail = file
    counts = {slot.key: number for number, slot in enumerate(own)}  # the last one
    data = "".join([head, *(f"{s.before}{s.written}{s.after}" for s in own), tail]).encode()
    made = set_values(data, values)
    assert texts(made) == {**texts(data), **values}
    assert texts(set_values(made, values)) == texts(made)
    expected = head
    for number, slot in enumerate(own):
        new = values.get(slot.key, slot.value) if counts[slot.key] == number else slot.value
        form = slot.form
        if new == slot.value:
            written = slot.written
        elif form == "cdata" and "]]>" in new:
            expected += f"{slot.before.removesuffix('<![CDATA[')}{escape(new)}"
            expected += slot.after.removeprefix("]]>")
            continue
        else:
            written = WRITE["text" if form == "numbers" else form](new)
        expected += f"{slot.before}{written}{slot.after}"
    text = made.decode()
    if set(values) <= set(counts):
        assert text == f"{expected}{tail}"
    else:  # what is new stands in one place, behind all that was there
        whole = f"{expected}{tail}"
        same, rest = shared(text, whole), shared(text[::-1], whole[::-1])
        assert same + rest >= len(whole) and same >= len(expected.rstrip())
