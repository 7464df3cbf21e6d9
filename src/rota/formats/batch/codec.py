"""Compressed records: the four codecs, with a bound on what comes out.

Each writes what Kafka's own producer writes: gzip, snappy in the framing of snappy-java ("xerial"),
lz4 and zstd frames. Snappy without a frame, as librdkafka writes it, is read too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from rota.errors import FormatError
from rota.formats.batch.extra import load
from rota.formats.batch.header import Codec
from rota.formats.buffer import Bytes

MOST = 1 << 27
"""The most bytes that one batch may have, decompressed: many times what brokers accept."""
GZIP_FORM = 31
"""zlib's window bits for gzip with the largest window."""
GZIP_PIECE = 1 << 14
"""Bytes that are read at a time: of each, zlib copies what is behind the end of a member."""
XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL + struct.pack(">ii", 1, 1)
"""The version, and the oldest that can read it."""
XERIAL_BLOCK = 32 * 1024
FIRST_GUESS = 4
"""Records are tried to be so many times their compressed size, then more."""
ZSTD_LEVEL = 3
"""As Kafka's producer has it."""
FULL = "failed to write whole buffer"
"""What cramjam says where the room was too small."""
_SIZE = struct.Struct(">i")


class TooLarge(Exception):
    """More would come out than is allowed."""


def known(codec: int) -> Codec:
    """The codec of this number.

    :raises FormatError: there is none
    """
    try:
        return Codec(codec)
    except ValueError:
        names = ", ".join(f"{each.value} {each.name.lower()}" for each in Codec)
        raise FormatError(f"codec {codec} is not known ({names})") from None


def decompress(codec: int, data: Bytes, most: int = MOST) -> bytes:
    """The records' own bytes.

    :raises FormatError: an unknown codec, or bytes that it does not understand
    :raises TooLarge: they would be more than ``most``
    """
    return DECOMPRESS[known(codec)](data, most)


def compress(codec: Codec, data: bytes) -> bytes:
    """What a producer would send."""
    return COMPRESS[codec](data)


def _cramjam(codec: str) -> ModuleType:
    return load("cramjam", f"{codec} compression")


def _plain(data: Bytes, most: int) -> bytes:
    if len(data) > most:
        raise TooLarge
    return bytes(data)


def _gunzip(data: Bytes, most: int) -> bytes:
    """All members, as Java reads them."""
    found: list[bytes] = []
    view = memoryview(data)
    at = 0
    try:
        while at < len(view):
            member = zlib.decompressobj(GZIP_FORM)
            while not member.eof:
                piece = view[at : at + GZIP_PIECE]
                if not piece:
                    raise FormatError("gzip: incomplete")
                at += len(piece)
                found.append(member.decompress(piece, most + 1))
                most -= len(found[-1])
                if most < 0:
                    raise TooLarge
            at -= len(member.unused_data)
    except zlib.error as error:
        raise FormatError(f"gzip: {error}") from None
    if not found:
        raise FormatError("gzip: incomplete")
    return b"".join(found)


def _gzip(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=GZIP_FORM)
    return member.compress(data) + member.flush()


def _unframe(name: str) -> Callable[[Bytes, int], bytes]:
    """Decompression of frames that need not say how large they are: the room grows as needed."""

    def decompressed(data: Bytes, most: int) -> bytes:
        library = _cramjam(name)
        into = getattr(library, name).decompress_into
        room = min(max(FIRST_GUESS * len(data), 1 << 12), most)
        while True:
            out = bytearray(room)
            try:
                size = into(data, out)
            except library.DecompressionError as error:
                if FULL not in str(error):
                    raise FormatError(f"{name}: {error}") from None
                if room == most:
                    raise TooLarge from None
                room = min(FIRST_GUESS * room, most)
            else:
                return bytes(memoryview(out)[:size])

    return decompressed


def _unsnap(data: Bytes, most: int) -> bytes:
    library = _cramjam("snappy")
    try:
        if bytes(data[: len(XERIAL)]) != XERIAL:
            return _unsnap_block(library, data, most)
        return b"".join(_xerial_blocks(library, data, most))
    except library.DecompressionError as error:
        raise FormatError(str(error)) from None


def _xerial_blocks(library: ModuleType, data: Bytes, most: int) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        if bytes(data[at : at + len(XERIAL)]) == XERIAL:  # one stream may follow another
            at += len(XERIAL_HEAD)
            continue
        if len(data) - at < _SIZE.size:
            raise FormatError("snappy: a block's size is cut")
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 <= size <= len(data) - at:
            raise FormatError(f"snappy: a block of {size} bytes, {len(data) - at} left")
        found.append(_unsnap_block(library, data[at : at + size], most))
        most -= len(found[-1])
        at += size
    if at > len(data):
        raise FormatError("snappy: the head is cut")
    return found


def _unsnap_block(library: ModuleType, data: Bytes, most: int) -> bytes:
    snappy = library.snappy
    if not data:
        raise FormatError("snappy: nothing there")
    size = snappy.decompress_raw_len(data)
    if size > most:
        raise TooLarge
    out = bytearray(size)
    if snappy.decompress_raw_into(data, out) != size:
        raise FormatError("snappy: shorter than it says")
    return bytes(out)


def _snap(data: bytes) -> bytes:
    snappy = _cramjam("snappy").snappy
    out = [XERIAL_HEAD]
    for begin in range(0, len(data), XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(data[begin : begin + XERIAL_BLOCK]))
        out += [_SIZE.pack(len(block)), block]
    return b"".join(out)


def _lz4(data: bytes) -> bytes:
    """Blocks that do not refer to each other: Kafka reads no others."""
    frame = _cramjam("lz4").lz4.Compressor(content_checksum=False, block_linked=False)
    frame.compress(data)
    return bytes(frame.finish())


def _zstd(data: bytes) -> bytes:
    return bytes(_cramjam("zstd").zstd.compress(data, level=ZSTD_LEVEL))


DECOMPRESS: Mapping[Codec, Callable[[Bytes, int], bytes]] = MappingProxyType(
    {
        Codec.NONE: _plain,
        Codec.GZIP: _gunzip,
        Codec.SNAPPY: _unsnap,
        Codec.LZ4: _unframe("lz4"),
        Codec.ZSTD: _unframe("zstd"),
    }
)
COMPRESS: Mapping[Codec, Callable[[bytes], bytes]] = MappingProxyType(
    {
        Codec.NONE: bytes,
        Codec.GZIP: _gzip,
        Codec.SNAPPY: _snap,
        Codec.LZ4: _lz4,
        Codec.ZSTD: _zstd,
    }
)
