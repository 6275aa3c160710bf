//! The table of panel formats, packed or made when they are needed.

use crate::float::Weight;
use crate::int8::panel::{
    AffinePanel, BytesMinPanel, BytesPanel, HalvesMinPanel, HalvesPanel, PanelFormat, Q4_0Panel, Q4_1Panel,
    Q8_0Panel,
};

/// What is done with panels of plain floats, whatever their type.
pub(crate) trait UseFloatPanels {
    /// What comes of it.
    type Output;
    /// Does it with panels of `W`.
    fn run<W: Weight>(self) -> Self::Output;
}

/// What is done with panels for the int8 tiles, whatever their format.
pub(crate) trait UseInt8Panels {
    /// What comes of it.
    type Output;
    /// Does it with panels of `format`.
    fn run<F: PanelKind>(self, format: F) -> Self::Output;
}

/// A format of panels that [`Kind`] names.
pub(crate) trait PanelKind: PanelFormat {
    /// The kind of such panels.
    fn kind(self) -> Kind;
    /// The format, if `kind` is of this type.
    fn of(kind: Kind) -> Option<Self>;
}

/// Makes [`Kind`] of the table below.
macro_rules! kinds {
    (floats { $($float:ident($number:ty),)* } int8 { $($name:ident($format:ty),)* }) => {
        /// The format of panels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($float,)*
            $($name($format),)*
        }

        impl Kind {
            /// Passes the type of the numbers to `user` if the panels are plain floats.
            #[inline(always)]
            pub(crate) fn floats<U: UseFloatPanels>(self, user: U) -> Option<U::Output> {
                match self {
                    $(Self::$float => Some(user.run::<$number>()),)*
                    $(Self::$name(_) => None,)*
                }
            }

            /// Passes the format to `user` if the int8 tiles multiply the panels.
            #[inline(always)]
            pub(crate) fn int8<U: UseInt8Panels>(self, user: U) -> Option<U::Output> {
                match self {
                    $(Self::$float => None,)*
                    $(Self::$name(format) => Some(user.run(format)),)*
                }
            }
        }

        $(impl PanelKind for $format {
            #[inline(always)]
            fn kind(self) -> Kind {
                Kind::$name(self)
            }

            #[inline(always)]
            fn of(kind: Kind) -> Option<Self> {
                if let Kind::$name(format) = kind { Some(format) } else { None }
            }
        })*
    };
}

kinds! {
    floats {
        F32(f32),
        F16(half::f16),
        Bf16(half::bf16),
    }
    int8 {
        Q8_0(Q8_0Panel),
        Q4_0(Q4_0Panel),
        Q4_1(Q4_1Panel),
        Affine4(AffinePanel),
        Bytes(BytesPanel),
        BytesMin(BytesMinPanel),
        Halves(HalvesPanel),
        HalvesMin(HalvesMinPanel),
    }
}
