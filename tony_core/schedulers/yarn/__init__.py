"""YARN, without a JVM: the port's client side and master side on the protocols of ``hadoop``.

Begin reading at ``client`` (what submits, looks and kills) and ``pool`` (what holds the
containers). What travels from the one to the other is in ``parcel`` and ``site``.
"""
